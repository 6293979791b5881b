"""The models in force, for a command without an event loop: embedder and reranker, bundled or outside."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.embedded.rerank import bundled_weights
from gateway.adapters.rerank.endpoint import RerankEndpoint
from gateway.bootstrap.fitness import refuse_incomplete
from gateway.bootstrap.models import ModelsOpener
from gateway.context import Deadline
from gateway.evaluation.gate_rows import Order
from gateway.evaluation.index import Vectors
from gateway.evaluation.labelled import Passage
from gateway.evaluation.linear_order import LinearOrder
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import embedded_text
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.lexicon import TermStatistics
from gateway.settings import Settings

_CALL_MS = 120_000


@dataclass(frozen=True, slots=True)
class Models:
    """``embedder`` and, where answers are reranked, what puts their passages in order."""

    settings: Settings
    embedder: Vectors
    reranker: RerankEndpoint | None
    linear: bool
    runner: asyncio.Runner

    def order(self) -> Order | None:
        """For the passages of one set; None where only the fused order is in use."""
        if self.reranker is not None:
            return EndpointOrder(self.reranker, self.runner)
        return LinearOrder(self.embedder, bundled_weights()) if self.linear else None


@contextlib.contextmanager
def models_in_force(settings: Settings) -> Iterator[Models]:
    """Those that a process with these settings would ask; their connections end with the block.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    refuse_incomplete(settings)
    stack = AsyncExitStack()
    opener = ModelsOpener(settings, stack, {})
    bundled = settings.embedding_base_url is None
    with asyncio.Runner() as runner:
        try:
            reranker = None if settings.rerank == "off" else opener.rerank_endpoint()
            embedder: Vectors = (
                BundledEmbedder.load_now() if bundled else EndpointVectors(opener.offline_embedder(), runner)
            )
            yield Models(settings, embedder, reranker, bundled and settings.rerank != "off", runner)
        finally:
            runner.run(stack.aclose())


class EndpointVectors:
    """Vectors of an outside embedder. Raises what its calls raise."""

    def __init__(self, embedder: Embedder, runner: asyncio.Runner) -> None:
        self._embedder = embedder
        self._runner = runner

    @property
    def space(self) -> EmbeddingSpace:
        return self._embedder.space

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text."""
        rows = self._runner.run(self._embedder.embed(texts, Deadline.after(_CALL_MS)))
        return np.array(rows, dtype=np.float32)


class EndpointOrder:
    """An Order, the same that answers get from the endpoint. Raises RerankerUnavailable, DeadlineExceeded."""

    def __init__(self, reranker: RerankEndpoint, runner: asyncio.Runner) -> None:
        self._reranker = reranker
        self._runner = runner
        self.version = reranker.version

    def ranked(
        self,
        question: str,
        found: Sequence[Passage],
        similarities: Sequence[float],
        statistics: TermStatistics,
    ) -> list[Passage]:
        texts = [embedded_text(passage.title, "", passage.text) for passage in found]
        call = self._reranker.ranked(question, texts, Deadline.after(_CALL_MS))
        scores = np.array(self._runner.run(call))
        return [found[int(place)] for place in np.argsort(-scores, kind="stable")]
