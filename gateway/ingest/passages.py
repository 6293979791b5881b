"""Passages of a planned document: from its chunk file, or cut anew when that is lost."""

from collections.abc import Awaitable, Callable

from anyio import to_thread

from gateway.errors import DocumentRejected, DocumentUnusable, InvariantViolated, NotFound
from gateway.ingest import chunkfile
from gateway.ingest.building import DocumentParser
from gateway.ingest.document import BuiltDocument
from gateway.ingest.objects import ObjectStore
from gateway.ingest.originals import original
from gateway.ingest.plan import PlannedDocument
from gateway.retrieval.chunk import stable_hash

#: makes a document's passages again; raises DocumentUnusable when it can't
Rebuild = Callable[[PlannedDocument], Awaitable[BuiltDocument]]


async def passages_of(
    document: PlannedDocument, objects: ObjectStore, rebuild: Rebuild | None = None
) -> BuiltDocument:
    """As the document's manifest says. Without ``rebuild`` raises NotFound when the chunk file is gone,
    InvariantViolated when it isn't what the manifest says.
    """
    try:
        content = await objects.get(document.chunks_key)
    except NotFound:
        if rebuild is None:
            raise
        return await rebuild(document)
    built = await to_thread.run_sync(_loaded, document, content)
    if built is not None:
        return built
    if rebuild is None:
        raise InvariantViolated("a chunk file and its manifest disagree")
    return await rebuild(document)


class Rebuilder:
    """Cuts a document's original again and puts its chunk file back."""

    def __init__(self, objects: ObjectStore, parser: DocumentParser) -> None:
        self._objects = objects
        self._parser = parser

    async def rebuild(self, document: PlannedDocument) -> BuiltDocument:
        """Raises DocumentUnusable when the original is lost too, or is cut otherwise than it was."""
        try:
            content = await original(self._objects, document.original_key)
            built = await self._parser.build(document.source, document.media_type, content)
        except DocumentRejected as error:
            raise _unusable(document, error.detail) from error
        if not await to_thread.run_sync(_fits, document, built):
            raise _unusable(document, "this version cuts it into other passages; import it again")
        await self._objects.put(document.chunks_key, await to_thread.run_sync(chunkfile.dump, built))
        return built


def _loaded(document: PlannedDocument, content: bytes) -> BuiltDocument | None:
    try:
        built = chunkfile.load(content)
    except (ValueError, KeyError, TypeError):  # what a torn or overwritten file reads as
        return None
    return built if _fits(document, built) else None


def _fits(document: PlannedDocument, built: BuiltDocument) -> bool:
    passages = [stable_hash(passage.content) for passage in built.passages]
    return passages == [entry.content_hash for entry in document.manifest]


def _unusable(document: PlannedDocument, why: str) -> DocumentUnusable:
    return DocumentUnusable(document.source, f"its passages are lost, and {why}")
