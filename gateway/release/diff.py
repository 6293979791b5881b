"""The difference between two releases: their documents, passages and vectors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.release.model import ReleaseRecord

#: documents of one kind that are named; the rest is counted
NAMED_DOCUMENTS = 1000


@dataclass(frozen=True, slots=True)
class HeldDocument:
    """A document as one release holds it."""

    document_id: str
    version: int
    acl_class: int


@dataclass(frozen=True, slots=True)
class NamedDocument:
    document_id: str
    document_version: int
    source: str
    title: str


@dataclass(frozen=True, slots=True)
class DocumentList:
    """All of them counted, the first ones (by id) named."""

    count: int
    named: tuple[NamedDocument, ...]


@dataclass(frozen=True, slots=True)
class ChunkCounts:
    """Passages before and after; one is unchanged when its document has it with the same text in both."""

    before: int
    after: int
    added: int
    removed: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class ReleaseDiff:
    """What ``release`` has that ``against`` hasn't, and the other way round; ``against`` None is nothing.

    ``changed`` documents have another version, ``moved`` ones the same under another ACL class. ``vectors``
    is how many of the release's vectors its own task made (``embedded``) and how many were there
    (``reused``); None while it isn't built.
    """

    release: ReleaseRecord
    against: ReleaseRecord | None
    added: DocumentList
    changed: DocumentList
    removed: DocumentList
    moved: DocumentList
    chunks: ChunkCounts
    vectors: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Sorted:
    """The documents of two releases, sorted into kinds; removed ones as they were before."""

    added: tuple[HeldDocument, ...]
    changed: tuple[HeldDocument, ...]
    removed: tuple[HeldDocument, ...]
    moved: tuple[HeldDocument, ...]
    changed_from: tuple[HeldDocument, ...]

    @property
    def only_before(self) -> tuple[HeldDocument, ...]:
        return self.removed + self.changed_from

    @property
    def only_after(self) -> tuple[HeldDocument, ...]:
        return self.added + self.changed


def sort_documents(before: Sequence[HeldDocument], after: Sequence[HeldDocument]) -> Sorted:
    old = {document.document_id: document for document in before}
    new = {document.document_id: document for document in after}
    both = [(old[name], new[name]) for name in sorted(old.keys() & new.keys())]
    changed = [(was, now) for was, now in both if was.version != now.version]
    return Sorted(
        added=tuple(new[name] for name in sorted(new.keys() - old.keys())),
        changed=tuple(now for _, now in changed),
        removed=tuple(old[name] for name in sorted(old.keys() - new.keys())),
        moved=tuple(now for was, now in both if was.version == now.version and was != now),
        changed_from=tuple(was for was, _ in changed),
    )


#: how often a text stands in a document: (document id, hash of the embedded text) -> times
Texts = Counter[tuple[str, str]]


def count_chunks(before: int, after: int, texts_before: Texts, texts_after: Texts) -> ChunkCounts:
    """``before`` and ``after`` are all passages, the texts those of ``only_before`` and ``only_after``."""
    kept = (texts_before & texts_after).total()
    added, removed = texts_after.total() - kept, texts_before.total() - kept
    return ChunkCounts(before, after, added, removed, after - added)
