"""The port to an embedder, and the choice among several: its space must be the release's."""

from collections.abc import Sequence
from typing import Protocol

from gateway.context import Deadline
from gateway.errors import EmbeddingSpaceMismatch
from gateway.release.model import EmbeddingSpace

Vector = tuple[float, ...]


class Embedder(Protocol):
    """Turns text into unit vectors of one space."""

    @property
    def space(self) -> EmbeddingSpace: ...

    @property
    def max_sensitivity(self) -> int:
        """Text more sensitive than this never goes to it; 3 is everything, for one that stays inside."""
        ...

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        """One unit vector (length ``space.dimension``) a text, in order.

        Raises EmbedderUnavailable, DeadlineExceeded (stage ``embedding``), and EmbeddingSpaceMismatch
        when the model behind it makes vectors of another dimension.
        """
        ...


class Embedders:
    """Those that questions may be asked with: the present one and, while releases still need it, the one
    before. Of two for one space the first counts.
    """

    def __init__(self, *embedders: Embedder) -> None:
        self._of_space = {embedder.space: embedder for embedder in reversed(embedders)}

    def of(self, space: EmbeddingSpace) -> Embedder:
        """The one whose vectors are comparable with that space's. Raises EmbeddingSpaceMismatch."""
        found = self._of_space.get(space)
        if found is None:
            made = ", ".join(sorted(known.space_id for known in self._of_space))
            raise EmbeddingSpaceMismatch(f"the release needs {space.space_id}, not {made}")
        return found
