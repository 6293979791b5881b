"""Shelf: passages that were read, kept for the next question that finds them. A passage never changes."""

from collections.abc import Callable, Sequence

from gateway.adapters.embedded.reading import Reader, Reading, TextVectors
from gateway.retrieval.chunk import Chunk, stable_hash

#: what is kept in a process between two questions, with everything that was learnt of their words
_MOST_BYTES = 32 * 1024 * 1024


class Shelf:
    """Only who may see a passage has it read, and what is kept of it gives the same numbers as the passage
    itself: that it was found before shows in time alone. For one thread at a time.
    """

    def __init__(self, vectors: TextVectors, most_bytes: int = _MOST_BYTES) -> None:
        self._vectors = vectors
        self._most_bytes = most_bytes
        self._clear()

    @property
    def reader(self) -> Reader:
        """The one whose numbers the readings are in, until ``tidy``."""
        return self._reader

    @property
    def bytes(self) -> int:
        """What is kept, about."""
        return self._bytes + self._reader.bytes

    def read(self, chunks: Sequence[Chunk], goes_on: Callable[[], object]) -> list[Reading]:
        """In their order; ``goes_on`` is asked before each that wasn't read before, and may raise."""
        keys = [_key(chunk) for chunk in chunks]
        missing = {key: chunk for key, chunk in zip(keys, chunks, strict=True) if key not in self._kept}
        passages = [(f"{chunk.title}\n{chunk.section}", chunk.content) for chunk in missing.values()]
        fresh = dict(zip(missing, self._reader.read(passages, goes_on), strict=True))
        self._kept |= fresh
        self._bytes += sum(reading.bytes for reading in fresh.values())
        return [self._kept[key] for key in keys]

    def tidy(self) -> None:
        """Begins anew when it is full. After each question, for readings must be of one reader."""
        if self.bytes > self._most_bytes:
            self._clear()

    def _clear(self) -> None:
        self._reader = Reader(self._vectors)
        self._kept: dict[str, Reading] = {}
        self._bytes = 0


def _key(chunk: Chunk) -> str:
    """Over all that is read of it: no text is kept, and no tenant meets what another one has read."""
    return stable_hash(chunk.tenant_id, chunk.chunk_id, chunk.title, chunk.section, chunk.content)
