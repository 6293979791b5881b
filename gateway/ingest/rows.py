"""From a release plan to rows: chunk file + vectors + the plan's word on the document."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence

import anyio.lowlevel
from anyio import to_thread

from gateway.errors import InvariantViolated
from gateway.ingest import chunkfile
from gateway.ingest.catalog import VersionStore
from gateway.ingest.document import Passage
from gateway.ingest.objects import ObjectStore
from gateway.ingest.plan import ClassTerms, PlannedDocument, ReleasePlan
from gateway.ingest.vectors import VectorFiles
from gateway.ingest.version import ManifestEntry, VectorPlace
from gateway.retrieval.chunk import FOREVER, Chunk, embedded_text, row_id, stable_hash
from gateway.retrieval.store import Row
from gateway.retrieval.terms import terms_of


class TermCounter:
    """Counts passages and terms for each ACL class while rows pass by."""

    def __init__(self) -> None:
        self._passages: Counter[int] = Counter()
        self._frequencies: dict[int, Counter[str]] = {}

    def add(self, row: Row) -> None:
        acl_class = row.chunk.acl_class
        self._passages[acl_class] += 1
        self._frequencies.setdefault(acl_class, Counter()).update(set(row.terms))

    def classes(self) -> tuple[ClassTerms, ...]:
        return tuple(
            ClassTerms(acl_class, self._passages[acl_class], frequencies)
            for acl_class, frequencies in sorted(self._frequencies.items())
        )


async def rows_of(
    plan: ReleasePlan,
    documents: Sequence[PlannedDocument],
    objects: ObjectStore,
    versions: VersionStore,
    files: VectorFiles,
) -> AsyncIterator[Row]:
    """Every row of these documents, in order. Raises NotFound when a file is gone, InvariantViolated
    when a file isn't what the plan says.
    """
    hashes = dict.fromkeys(entry.text_hash for document in documents for entry in document.manifest)
    places = await versions.vector_places(plan.space.space_id, tuple(hashes))
    for document in documents:
        async for row in _rows_of_one(plan, document, objects, places, files):
            yield row


async def _rows_of_one(
    plan: ReleasePlan,
    document: PlannedDocument,
    objects: ObjectStore,
    places: Mapping[str, VectorPlace],
    files: VectorFiles,
) -> AsyncIterator[Row]:
    built = await to_thread.run_sync(chunkfile.load, await objects.get(document.chunks_key))
    if len(built.passages) != len(document.manifest):
        raise InvariantViolated("a chunk file and its manifest disagree")
    for entry, passage in zip(document.manifest, built.passages, strict=True):
        await anyio.lowlevel.checkpoint()  # terms take a while, and questions are answered on this loop
        if stable_hash(passage.content) != entry.content_hash or entry.text_hash not in places:
            raise InvariantViolated("a chunk file and its manifest disagree")
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
        valid_from=document.valid_from or 0,
        valid_until=FOREVER if document.valid_until is None else document.valid_until,
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
