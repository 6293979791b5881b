"""Embedding for imports and builds: each text once in its space, its vector kept in a file."""

from collections.abc import Mapping, Sequence

import anyio.lowlevel
from anyio import to_thread

from gateway.access.authorizer import DocumentRef
from gateway.admission.bulkhead import Bulkhead
from gateway.context import Deadline
from gateway.errors import InvariantViolated
from gateway.ingest.objects import ObjectStore
from gateway.ingest.vectors import VectorFiles, pack
from gateway.ingest.version import VectorPlace
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.embedding import Embedder, Vector

_EMBED_BATCH = 64
_BATCH_CAP_MS = 60_000


class TextVectors:
    """The vectors of one space. Replays are harmless: a file is named by its texts and written whole."""

    def __init__(
        self, objects: ObjectStore, embedder: Embedder, bulkhead: Bulkhead, batch: int = _EMBED_BATCH
    ) -> None:
        """``bulkhead`` bounds the batches that are embedded at a time, ``batch`` the texts of each."""
        self._objects = objects
        self._embedder = embedder
        self._bulkhead = bulkhead
        self._batch = batch

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    @property
    def max_sensitivity(self) -> int:
        """Text more sensitive than this is not embedded."""
        return self._embedder.max_sensitivity

    def files(self) -> VectorFiles:
        return VectorFiles(self._objects, self.space.dimension)

    async def lost(self, known: Mapping[str, VectorPlace], files: VectorFiles) -> list[str]:
        """The texts whose vector isn't at its place any more."""
        found = []
        for name, place in known.items():
            await anyio.lowlevel.checkpoint()
            if not await files.holds(place):
                found.append(name)
        return found

    async def complete(
        self,
        ref: DocumentRef,
        texts: Mapping[str, str],
        known: Mapping[str, VectorPlace],
        files: VectorFiles,
    ) -> dict[str, VectorPlace]:
        """As ``complete_all``, for one version."""
        return (await self.complete_all({ref: texts}, known, files))[ref]

    async def complete_all(
        self,
        wanted: Mapping[DocumentRef, Mapping[str, str]],
        known: Mapping[str, VectorPlace],
        files: VectorFiles,
    ) -> dict[DocumentRef, dict[str, VectorPlace]]:
        """Embeds these texts of some versions, each under its hash; returns the places of those that had
        none, under the first version that has the text.

        Who had one, and lost the vector with its file, gets it back at the place the catalog knows.
        """
        texts = {name: text for own in wanted.values() for name, text in own.items()}
        vectors = dict(zip(texts, await self._embed(list(texts.values())), strict=True))
        lost = {known[name]: vector for name, vector in vectors.items() if name in known}
        if lost:
            await files.put_back(lost)
        new = _first_of_each(wanted, known)
        contents, places = await to_thread.run_sync(self._files_of, new, vectors)
        if contents:
            await self._objects.put_all(contents)
        return places

    def _files_of(
        self, new: Mapping[DocumentRef, Sequence[str]], vectors: Mapping[str, Vector]
    ) -> tuple[dict[str, bytes], dict[DocumentRef, dict[str, VectorPlace]]]:
        """A file for each version that has new texts, and where in it their vectors lie."""
        contents: dict[str, bytes] = {}
        places: dict[DocumentRef, dict[str, VectorPlace]] = {}
        for ref, names in new.items():
            name_of_file = f"{ref.document_version}-{stable_hash(*names)}.f32"
            key = f"vectors/{self.space.space_id}/{ref.document_id}/{name_of_file}"
            if names:
                contents[key] = pack([vectors[name] for name in names])
            places[ref] = {name: VectorPlace(key, position) for position, name in enumerate(names)}
        return contents, places

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), self._batch):
            batch = texts[start : start + self._batch]
            deadline = Deadline.after(_BATCH_CAP_MS)
            with await self._bulkhead.acquire(deadline):
                vectors += await self._embedder.embed(batch, deadline)
        if len(vectors) != len(texts):
            raise InvariantViolated("the embedder gave another number of vectors than it got texts")
        return vectors


def _first_of_each(
    wanted: Mapping[DocumentRef, Mapping[str, str]], known: Mapping[str, VectorPlace]
) -> dict[DocumentRef, list[str]]:
    """The texts without a place, each under the first version that has it."""
    taken = set(known)
    first: dict[DocumentRef, list[str]] = {}
    for ref, texts in wanted.items():
        first[ref] = [name for name in texts if name not in taken]
        taken.update(texts)
    return first
