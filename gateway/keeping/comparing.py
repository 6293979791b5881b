"""Comparing: whether catalog, originals, chunk files, vector files, stored rows and citations agree."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from gateway.errors import DocumentUnusable, InvariantViolated, NotFound
from gateway.ingest.catalog import VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuilder, passages_of
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.vectors import VectorFiles
from gateway.keeping.backup import is_whole
from gateway.keeping.catalog import KeptCatalog, RetainedRelease
from gateway.keeping.lost_vectors import LostVectors
from gateway.keeping.mending import Mending
from gateway.keeping.refilling import Refill
from gateway.retrieval.store import ChunkWriter

_DOCUMENTS = 100
#: an entry of the journal is sent within seconds; a minute means that something is wrong
LATE_S = 60.0


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """What doesn't agree. ``code`` is stable; ``repaired`` says what was done about it, or is empty."""

    part: str
    code: str
    detail: str
    repaired: str = ""


@dataclass(slots=True)
class Compared:
    """How much was looked at, and what was found."""

    versions: int = 0
    revisions: int = 0
    rows: int = 0
    citations: int = 0
    discrepancies: list[Discrepancy] = field(default_factory=list)

    def add(self, part: str, code: str, detail: str, repaired: str = "") -> None:
        self.discrepancies.append(Discrepancy(part, code, detail, repaired))


class Comparison:
    """Reads every object that the catalog needs, and counts every stored row, once.

    With ``repair`` it does what can lose nothing: it writes again what can be made again, and removes rows
    of revisions that no release names. Others may be using the catalog meanwhile.
    """

    def __init__(
        self,
        catalog: KeptCatalog,
        versions: VersionStore,
        objects: ObjectStore,
        writer: ChunkWriter,
        *,
        filling: Refill,
        rebuilder: Rebuilder,
        vectors: TextVectors,
        repair: bool,
    ) -> None:
        self._catalog = catalog
        self._objects = objects
        self._writer = writer
        self._filling = filling
        self._mending = Mending(catalog, filling)
        self._rebuilder = rebuilder
        self._lost = LostVectors(objects, versions, vectors, rebuilder.rebuild)
        self._repair = repair

    async def run(self) -> Compared:
        """Raises Unavailable when a part is down."""
        compared = Compared()
        await self._compare_documents(compared)
        await self._compare_revisions(compared)
        await self._find_orphans(compared)
        lag_s = await self._catalog.journal_lag_s()
        if lag_s > LATE_S:
            compared.add("journal", "journal_late", f"its oldest entry waits since {lag_s:.0f} s")
        return compared

    # documents: originals and chunk files

    async def _compare_documents(self, compared: Compared) -> None:
        async for document in self._documents():
            compared.versions += 1
            await self._compare_original(compared, document)
            if document.chunks_key:
                await self._compare_chunks(compared, document)

    async def _documents(self) -> AsyncIterator[PlannedDocument]:
        after = ""
        while page := await self._catalog.versions(after, _DOCUMENTS):
            for document in page:
                yield document
            after = page[-1].ref.document_id

    async def _compare_original(self, compared: Compared, document: PlannedDocument) -> None:
        try:
            content = await self._objects.get(document.original_key)
        except NotFound:
            compared.add("originals", "original_missing", _named(document))
            return
        if not is_whole(document.original_key, content):
            compared.add("originals", "original_damaged", _named(document))

    async def _compare_chunks(self, compared: Compared, document: PlannedDocument) -> None:
        try:
            await passages_of(document, self._objects)
        except NotFound:
            code = "chunk_file_missing"
        except InvariantViolated:
            code = "chunk_file_damaged"
        else:
            return
        detail, repaired = _named(document), ""
        if self._repair:
            try:
                await self._rebuilder.rebuild(document)
                repaired = "cut again from its original"
            except DocumentUnusable as error:
                detail = f"{detail}: {error.detail}"
        compared.add("chunk_files", code, detail, repaired)

    # revisions: vectors, rows, citations

    async def _compare_revisions(self, compared: Compared) -> None:
        for release in await self._catalog.retained():
            plan = await self._catalog.plan(release.release_id)
            compared.revisions += 1
            if await self._compare_vectors(compared, plan):
                await self._compare_rows(compared, release, plan)

    async def _compare_vectors(self, compared: Compared, plan: ReleasePlan) -> bool:
        """Whether every vector is there, by now."""
        files = VectorFiles(self._objects, plan.space.dimension)
        complete = True
        for document in plan.documents:
            lost = await self._lost.of(plan, document, files)
            if lost is not None:
                repaired = "embedded again" if self._repair and await self._lost.embed(plan, lost) else ""
                complete &= bool(repaired)
                detail = f"{len(lost.names)} of {lost.texts} vectors of {_named(document)}"
                compared.add("vector_files", "vectors_missing", detail, repaired)
        return complete

    async def _compare_rows(self, compared: Compared, release: RetainedRelease, plan: ReleasePlan) -> None:
        try:
            expected = await self._filling.expected(plan)
        except (NotFound, InvariantViolated, DocumentUnusable):
            return  # its document was named above
        stored = await self._filling.stored(plan)
        compared.rows += stored
        compared.citations += len(expected.samples)
        about = f"{release.state.value} release {release.release_id}"
        if stored != expected.rows:
            detail = f"{about} has {stored} rows instead of {expected.rows}"
            code = "rows_missing" if stored < expected.rows else "rows_surplus"
        elif release.moving or await self._filling.is_whole(plan, expected):
            return  # rows that are on their way to another class can't be told from the catalog
        else:
            code, detail = "citations_broken", f"{about}: sampled passages don't read back"
        if await self._mending.is_whole(release.release_id):
            return  # others have changed it since it was read
        repaired = ""
        if self._repair:
            if await self._mending.mend(release.release_id):
                repaired = "its rows were written again"
            else:
                detail += "; a document is moving to another class: compare again when it has"
        compared.add("revisions", code, detail, repaired)

    async def _find_orphans(self, compared: Compared) -> None:
        for space in await self._catalog.spaces():
            stored = await self._writer.revisions(space)  # first: a build is in the catalog before its rows
            named = await self._catalog.unfinished_revisions()
            named |= {release.kb_revision for release in await self._catalog.retained()}
            for revision in sorted(set(stored) - named):
                repaired = ""
                if self._repair:
                    await self._writer.drop(space, revision)
                    repaired = "removed"
                detail = f"{stored[revision]} rows of {revision} in {space.space_id}"
                compared.add("revisions", "rows_orphaned", detail, repaired)


def _named(document: PlannedDocument) -> str:
    return f"{document.source} ({document.ref.document_id}, version {document.ref.document_version})"
