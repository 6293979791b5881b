"""The port to an embedder; its space must be the release's."""

from collections.abc import Sequence
from typing import Protocol

from gateway.context import Deadline
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
