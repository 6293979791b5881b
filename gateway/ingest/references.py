"""What the stores hold and the catalog has no need of any more: the ports that tell, and what they tell.

Each method is one transaction, or several short ones; every one raises CatalogUnavailable when the catalog
can't answer, and StaleFence when it gets a claim that another worker holds by now.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.access.authorizer import DocumentRef
from gateway.ingest.task import TaskClaim
from gateway.release.model import EmbeddingSpace

#: of a clean-up: as long as a part that is down may take to come back
CLEANUP_DEADLINE_S = 7 * 86_400.0
#: after that, what somebody condemned and didn't bury is anybody's: by then he deletes nothing any more
TAKEOVER_S = 20.0
#: when a version was withdrawn whose files were taken away: longer ago than anybody asks for
FILES_GONE = 0.0
ORIGINALS, CHUNKS, VECTORS = "originals", "chunks", "vectors"
#: chunks/{document}/{version}-{digest}.json, vectors/{space}/{document}/{version}-{digest}.f32
_OWNED = re.compile(rf"(?:{CHUNKS}|{VECTORS}/.+)/([^/]+)/([0-9]{{1,9}})(?:[^0-9/][^/]*)?")


def owner_of(key: str) -> DocumentRef | None:
    """The version that a chunk file or a vector file was made for; None for any other object."""
    match = _OWNED.fullmatch(key)
    return None if match is None else DocumentRef(match[1], int(match[2]))


@dataclass(frozen=True, slots=True)
class ReclaimPolicy:
    """How long what nobody asks for is kept, in seconds.

    ``window_s``: a release or version that a rollback may want; of the releases it may go to, the newest
    ``releases`` are kept for as long as they are. ``afterlife_s``: for so long after a revision was reclaimed
    somebody who was frozen may still write into it.
    """

    window_s: float
    releases: int
    afterlife_s: float = 86_400.0


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """A release's rows in the vector store."""

    release_id: str
    kb_revision: str
    space: EmbeddingSpace


@dataclass(frozen=True, slots=True)
class Holding:
    """A revision that shall hold nothing of a document; ``version`` is what it holds, as far as known."""

    revision: StoredRevision
    version: int | None


@dataclass(frozen=True, slots=True)
class DeletedVersion:
    """``chunks_key`` is empty before it was built and once it was erased."""

    version: int
    title: str
    original_key: str
    chunks_key: str


@dataclass(frozen=True, slots=True)
class Remains:
    """What the deleted versions of a document may have left. ``vector_files`` hold vectors of their texts,
    ``spaces`` are all that there are. ``deleted_at`` is that of the newest one.
    """

    document_id: str
    deleted_at: float
    versions: tuple[DeletedVersion, ...]
    holdings: tuple[Holding, ...]
    vector_files: tuple[str, ...]
    spaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DocumentTerms:
    """Term statistics of one version: its passages, and term -> passages with it."""

    passages: int
    frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Sentence:
    """``condemned``: nothing refers to these and nobody may until they are buried; the one who got this
    takes them away, as of ``at``. ``needed``: something refers to them. ``busy``: somebody else is at it.
    """

    at: float
    condemned: tuple[str, ...]
    needed: tuple[str, ...]
    busy: tuple[str, ...]


class RemainsStore(Protocol):
    async def remains(self, claim: TaskClaim) -> Remains | None:
        """Of the claim's target; None when none of its versions was deleted."""
        ...

    async def forget(self, claim: TaskClaim, holding: Holding, terms: DocumentTerms | None) -> None:
        """The revision's rows of the document are gone: it counts neither among its documents nor in its
        term statistics any more. Doing it again changes nothing.
        """
        ...

    async def erase_quotes(self, claim: TaskClaim, versions: Sequence[int]) -> int:
        """What traces quote of the target's versions, and the turns of conversations that rest on them; how
        many passages and turns.
        """
        ...

    async def erase(self, claim: TaskClaim, versions: Sequence[int]) -> None:
        """The versions' manifests and titles; that they were is still known."""
        ...


class ReferenceStore(Protocol):
    async def condemn(self, keys: Sequence[str], window_s: float, takeover_s: float) -> Sentence:
        """Whoever is about to refer to one of these keys is waited for. Vector files lose their places at
        once, so that nobody finds them, and versions whose files these are count as withdrawn, so that no
        release falls back to them. One that somebody else condemned ``takeover_s`` ago is taken over.

        An object is needed by a version that is being built, or in a release that isn't FAILED or
        RECLAIMED, or READY and not older than what is active; for ``window_s`` also by one that a rollback
        withdrew. A deleted version needs nothing. What isn't an original, a chunk file or a vector file of
        a known form is always needed.
        """
        ...

    async def bury(self, sentence: Sentence) -> None:
        """They are gone from the store: new ones may be put in their places."""
        ...

    async def left_condemned(self, takeover_s: float) -> list[str]:
        """Whoever condemned these hasn't buried them since."""
        ...


class ReclaimStore(Protocol):
    async def schedule_reclaims(self, policy: ReclaimPolicy, deadline_s: float) -> int:
        """Makes a task for each knowledge base that has something due, unless one is waiting or running, and
        for each deleted document that needs a clean-up and has none any more; how many it made.
        """
        ...

    async def begin_reclaim(self, claim: TaskClaim, policy: ReclaimPolicy) -> list[StoredRevision]:
        """Makes RECLAIMED what is due, so that nobody can go back to it, and says whose rows are to be
        dropped: also those that were reclaimed before and in which somebody may have written since. Their
        term statistics are dropped here.
        """
        ...

    async def swept(self, claim: TaskClaim, revision: StoredRevision) -> None:
        """Its rows were dropped just now."""
        ...

    async def claim_sweep(self, every_s: float) -> bool:
        """Whether the caller is to look through the object store now; true once in ``every_s``."""
        ...
