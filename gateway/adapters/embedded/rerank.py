"""The linear reranker: weighed features of question and passage, in this process and without an endpoint."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import anyio
import numpy as np
from anyio import from_thread, to_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.features import features
from gateway.adapters.embedded.shelf import Shelf
from gateway.adapters.embedded.weights import RankingWeights
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, RerankerUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics

#: so many of the candidates are read, the first; the rest stay behind them as they were. Reading is what a
#: rerank costs, and on labelled questions one right passage in fifty stands further down
CLOSE = 24


class TextEmbedder(Protocol):
    """An embedder that stays in this process and can be called from a thread."""

    @property
    def space(self) -> EmbeddingSpace: ...

    @property
    def max_sensitivity(self) -> int: ...

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a text; blocks."""
        ...


class LinearReranker:
    """A Reranker. Its numbers are logits of a softmax over the candidates of one question, so differences
    mean the same for every question; see ``features`` for what is weighed.
    """

    def __init__(
        self, embedder: TextEmbedder, weights: RankingWeights, space: EmbeddingSpace | None = None
    ) -> None:
        """``embedder`` reads words and sentences; the similarities of candidates are of ``space``, None = its
        own. Raises ConfigurationError when the weights are of another one.
        """
        if weights.space_id != (space or embedder.space).space_id:
            raise ConfigurationError("ranking_weights_unusable", f"they are of {weights.space_id}")
        self._embedder = embedder
        self._weights = weights
        self._shelf = Shelf(embedder.vectors)
        # numpy lets go of the interpreter lock for moments only: two at once would share one core
        self._turn = anyio.CapacityLimiter(1)

    @property
    def version(self) -> str:
        return self._weights.version

    @property
    def max_sensitivity(self) -> int:
        return self._embedder.max_sensitivity

    @property
    def in_process(self) -> bool:
        return True

    async def scores(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Sequence[float]:
        """In a thread, one question at a time; a cancelled or late one ends before its next passage."""
        if not candidates:
            return ()
        with anyio.move_on_after(deadline.remaining()):
            async with self._turn:
                goes_on = partial(_goes_on, deadline)
                return await to_thread.run_sync(self.scores_now, question, candidates, statistics, goes_on)
        raise DeadlineExceeded("rerank")

    def scores_now(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        goes_on: Callable[[], object] = lambda: None,
    ) -> tuple[float, ...]:
        """Blocks. Before a passage is read, before their vectors are made and before they are compared,
        ``goes_on`` may raise. Raises RerankerUnavailable where a vector is no number.
        """
        near, rest = candidates[:CLOSE], candidates[CLOSE:]
        similarities = [candidate.similarity for candidate in near]
        try:
            read = self._shelf.read([candidate.chunk for candidate in near], goes_on)
            goes_on()
            reader, vectors = self._shelf.reader, self._embedder.vectors
            rows = features(question, read, similarities, statistics, reader, vectors)
        finally:
            self._shelf.tidy()
        scores = rows @ np.array(self._weights.values)
        if not np.isfinite(scores).all():
            raise RerankerUnavailable("the linear reranker's numbers aren't finite")
        behind = float(scores.min()) - np.arange(1, len(rest) + 1)
        return (*scores.tolist(), *behind.tolist())


def _goes_on(deadline: Deadline) -> None:
    """In the thread: raises when nobody waits for the order any more."""
    from_thread.check_cancelled()
    deadline.budget("rerank", math.inf)
