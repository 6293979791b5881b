"""From a release plan to rows: chunk file + vectors + the plan's word on the document."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import anyio.lowlevel

from gateway.errors import InvariantViolated
from gateway.ingest.catalog import VersionStore
from gateway.ingest.document import Passage
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuild, passages_of
from gateway.ingest.plan import ClassTerms, PlannedDocument, ReleasePlan
from gateway.ingest.vectors import VectorFiles
from gateway.ingest.version import ManifestEntry, VectorPlace
from gateway.retrieval.chunk import Chunk, embedded_text, row_id
from gateway.retrieval.lexicon import Validity
from gateway.retrieval.store import Row
from gateway.retrieval.terms import terms_of

#: rows that are written at a time
BATCH_ROWS = 500


def groups_of(documents: Sequence[PlannedDocument]) -> Iterator[list[PlannedDocument]]:
    """Runs of documents with about a batch of rows."""
    group: list[PlannedDocument] = []
    rows = 0
    for document in documents:
        group.append(document)
        rows += len(document.manifest)
        if rows >= BATCH_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


class TermCounter:
    """Counts passages and terms for each ACL class and validity while rows pass by.

    ``valid`` has those that are valid at the moment ``at`` (seconds since the epoch), class by class.
    """

    def __init__(self, at: float | None = None) -> None:
        self.at = int(time.time() if at is None else at)
        self.valid: Counter[int] = Counter()
        self._passages: Counter[tuple[int, Validity]] = Counter()
        self._frequencies: dict[tuple[int, Validity], Counter[str]] = {}

    def add(self, row: Row) -> None:
        acl_class = row.chunk.acl_class
        validity = Validity(row.chunk.valid_from, row.chunk.valid_until)
        self.valid[acl_class] += validity.holds(self.at)
        group = acl_class, validity.since(self.at)
        self._passages[group] += 1
        self._frequencies.setdefault(group, Counter()).update(set(row.terms))

    def rarest(self, row: Row) -> tuple[str, int] | None:
        """Of a row's terms the one that the fewest passages of its class have, and how many do."""
        seen = dict.fromkeys(row.terms, 0)
        for (acl_class, _), frequencies in self._frequencies.items():
            if acl_class == row.chunk.acl_class:
                seen.update((term, number + frequencies[term]) for term, number in seen.items())
        return min(((term, seen[term]) for term in row.terms), key=lambda pair: pair[::-1], default=None)

    def classes(self) -> tuple[ClassTerms, ...]:
        return tuple(
            ClassTerms(acl_class, self._passages[acl_class, validity], frequencies, validity)
            for (acl_class, validity), frequencies in sorted(self._frequencies.items())
        )


async def rows_of(
    plan: ReleasePlan,
    documents: Sequence[PlannedDocument],
    objects: ObjectStore,
    versions: VersionStore,
    files: VectorFiles,
    rebuild: Rebuild | None = None,
) -> AsyncIterator[Row]:
    """Every row of these documents, in order; ``rebuild`` makes lost passages again. Raises NotFound when
    a file is gone, InvariantViolated when a file isn't what the plan says, and what ``rebuild`` raises.
    """
    places = await versions.vector_places(plan.space.space_id, texts_of(documents))
    for document in documents:
        async for row in _rows_of_one(plan, document, objects, places, files, rebuild):
            yield row


def texts_of(documents: Sequence[PlannedDocument]) -> tuple[str, ...]:
    """The hash of each text that these documents embed, once."""
    return tuple(dict.fromkeys(entry.text_hash for document in documents for entry in document.manifest))


async def _rows_of_one(
    plan: ReleasePlan,
    document: PlannedDocument,
    objects: ObjectStore,
    places: Mapping[str, VectorPlace],
    files: VectorFiles,
    rebuild: Rebuild | None,
) -> AsyncIterator[Row]:
    built = await passages_of(document, objects, rebuild)
    for entry, passage in zip(document.manifest, built.passages, strict=True):
        await anyio.lowlevel.checkpoint()  # terms take a while, and questions are answered on this loop
        if entry.text_hash not in places:
            raise InvariantViolated("a text of the plan has no vector")
        chunk = _chunk(plan, document, entry, passage)
        text = embedded_text(document.title, passage.section, passage.content)
        yield Row(chunk, await files.vector(places[entry.text_hash]), terms_of(text))


def _chunk(plan: ReleasePlan, document: PlannedDocument, entry: ManifestEntry, passage: Passage) -> Chunk:
    return Chunk(
        row_id=row_id(plan.kb_revision, entry.chunk_id),
        chunk_id=entry.chunk_id,
        tenant_id=plan.tenant,
        kb_id=plan.kb_id,
        kb_revision=plan.kb_revision,
        embedding_space_id=plan.space.space_id,
        document_id=document.ref.document_id,
        document_version=document.ref.document_version,
        chunk_index=entry.chunk_index,
        acl_class=document.acl_class,
        category=document.category,
        valid_from=document.validity.valid_from,
        valid_until=document.validity.valid_until,
        sensitivity=document.sensitivity,
        revocation_epoch=plan.revocation_epoch,
        title=document.title,
        section=passage.section,
        page=passage.page,
        source_uri=document.uri,
        parser_version=document.parser_version,
        splitter_version=document.splitter_version,
        content_hash=entry.content_hash,
        author=document.author,
        approval=document.approval,
        risk=document.risk,
        content=passage.content,
    )
