"""The vectors of an OpenAI-compatible endpoint, for a command that has no event loop."""

import asyncio
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.openai.embedding import OpenAIEmbedder
from gateway.context import Deadline
from gateway.release.model import EmbeddingSpace

_BATCH_MS = 120_000


class Endpoint:
    """A context: its loop and its connections end with the block. Raises what OpenAIEmbedder raises."""

    def __init__(self, embedder: OpenAIEmbedder) -> None:
        self._embedder = embedder
        self._runner = asyncio.Runner()

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text."""
        rows = self._runner.run(self._embedder.embed(texts, Deadline.after(_BATCH_MS)))
        return np.array(rows, dtype=np.float32)

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.run(self._embedder.aclose())
        self._runner.close()
