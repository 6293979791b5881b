"""Lost vectors: texts of a release whose vectors are gone with a file, embedded again into their places."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import DocumentUnusable, InvariantViolated, NotFound
from gateway.ingest.catalog import VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuild, passages_of
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.rows import texts_of
from gateway.ingest.vectors import VectorFiles
from gateway.ingest.version import VectorPlace
from gateway.retrieval.chunk import embedded_text


@dataclass(frozen=True, slots=True)
class Lost:
    """Of a document's ``texts`` these have no vector. ``known`` are places that the catalog names."""

    document: PlannedDocument
    texts: int
    names: frozenset[str]
    known: Mapping[str, VectorPlace]

    @property
    def files(self) -> str:
        return ", ".join(sorted({place.object_key for place in self.known.values()}))


class LostVectors:
    """Finds them, and has them made again by the embedder that made them."""

    def __init__(
        self, objects: ObjectStore, versions: VersionStore, vectors: TextVectors, rebuild: Rebuild
    ) -> None:
        """``rebuild`` makes lost chunk files again."""
        self._objects = objects
        self._versions = versions
        self._vectors = vectors
        self._rebuild = rebuild

    async def of(self, plan: ReleasePlan, document: PlannedDocument, files: VectorFiles) -> Lost | None:
        texts = texts_of([document])
        places = await self._versions.vector_places(plan.space.space_id, texts)
        names = frozenset(
            {name for name in texts if name not in places or not await files.holds(places[name])}
        )
        known = {name: places[name] for name in names if name in places}
        return Lost(document, len(texts), names, known) if names else None

    async def embed(self, plan: ReleasePlan, lost: Lost) -> bool:
        """Whether they are back: the embedder may make another space, or not be cleared for the text."""
        document = lost.document
        if (
            len(lost.known) < len(lost.names)
            or plan.space.space_id != self._vectors.space.space_id
            or document.sensitivity > self._vectors.max_sensitivity
        ):
            return False
        try:
            built = await passages_of(document, self._objects, self._rebuild)
        except (NotFound, InvariantViolated, DocumentUnusable):
            return False
        texts = {
            entry.text_hash: embedded_text(document.title, passage.section, passage.content)
            for entry, passage in zip(document.manifest, built.passages, strict=True)
            if entry.text_hash in lost.known
        }
        await self._vectors.complete(document.ref, texts, lost.known, self._vectors.files())
        return True

    async def embed_all(self, plan: ReleasePlan) -> int:
        """How many vectors of a release are back. Raises DocumentUnusable, which names document and file."""
        files = VectorFiles(self._objects, plan.space.dimension)
        embedded = 0
        for document in plan.documents:
            lost = await self.of(plan, document, files)
            if lost is not None and not await self.embed(plan, lost):
                raise _unusable(plan, lost)
            embedded += 0 if lost is None else len(lost.names)
        return embedded


def _unusable(plan: ReleasePlan, lost: Lost) -> DocumentUnusable:
    where = lost.files or "a file that the catalog doesn't know"
    return DocumentUnusable(
        lost.document.source,
        f"vectors of version {lost.document.ref.document_version} are gone with {where}, and the configured "
        f"embedder can't make them again: they are of the space {plan.space.space_id}, sensitivity "
        f"{lost.document.sensitivity}; with one that can, run qa-gateway doctor --compare --repair and then "
        "the same restore again",
    )
