"""The linear reranker: weighed features of question and passage, in this process and without an endpoint."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Protocol

import anyio
import numpy as np
from anyio import from_thread, to_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.features import FEATURES, Reading, WordVectors, features
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, RerankerUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk, stable_hash
from gateway.retrieval.lexicon import TermStatistics

_WEIGHTS = "ranking_weights.json"
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


@dataclass(frozen=True, slots=True)
class RankingWeights:
    """Fitted for the vectors of one space; ``values`` are in the order of FEATURES. ``version`` ends in their
    digest: thresholds are stored for it, and other weights make another order.
    """

    version: str
    space_id: str
    values: tuple[float, ...]


def bundled_weights() -> RankingWeights:
    """Those in the package, as ``python -m eval.ranking`` wrote them. Raises ConfigurationError."""
    return weights_from(resources.files(__package__).joinpath(_WEIGHTS).read_text("utf-8"))


def weights_from(text: str) -> RankingWeights:
    """Raises ConfigurationError ``ranking_weights_unusable`` unless every feature has one finite number."""
    try:
        stored = json.loads(text)
        weights: Mapping[str, float] = stored["weights"]
        values = tuple(float(weights[name]) for name in FEATURES)
        version = f"{stored['version']}-{stable_hash(*FEATURES, *map(str, values))[:8]}"
        found = RankingWeights(version, str(stored["space_id"]), values)
    except (ValueError, KeyError, TypeError, AttributeError):
        found = None
    if found is None or len(weights) != len(FEATURES) or not all(map(math.isfinite, found.values)):
        raise ConfigurationError("ranking_weights_unusable", f"needs one number for each of {FEATURES}")
    return found


class LinearReranker:
    """A Reranker. Its numbers are logits of a softmax over the candidates of one question, so differences
    mean the same for every question; see ``features`` for what is weighed.
    """

    def __init__(self, embedder: TextEmbedder, weights: RankingWeights) -> None:
        """Raises ConfigurationError when the weights are of another space."""
        if weights.space_id != embedder.space.space_id:
            raise ConfigurationError("ranking_weights_unusable", f"they are of {weights.space_id}")
        self._embedder = embedder
        self._weights = weights
        self._words = WordVectors(embedder.vectors)
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
        """Blocks, about a millisecond for each of the first CLOSE. Before each of them, and before they are
        compared, ``goes_on`` may raise. Raises RerankerUnavailable where a vector is no number.
        """
        near, rest = candidates[:CLOSE], candidates[CLOSE:]
        vectors = self._embedder.vectors
        read = []
        for candidate in near:
            goes_on()
            read.append(Reading.of(_heading(candidate.chunk), candidate.chunk.content, vectors))
        goes_on()
        similarities = [candidate.similarity for candidate in near]
        rows = features(question, read, similarities, statistics, vectors, self._words)
        scores = rows @ np.array(self._weights.values)
        if not np.isfinite(scores).all():
            raise RerankerUnavailable("the linear reranker's numbers aren't finite")
        behind = float(scores.min()) - np.arange(1, len(rest) + 1)
        return (*scores.tolist(), *behind.tolist())


def _goes_on(deadline: Deadline) -> None:
    """In the thread: raises when nobody waits for the order any more."""
    from_thread.check_cancelled()
    deadline.budget("rerank", math.inf)


def _heading(chunk: Chunk) -> str:
    return f"{chunk.title}\n{chunk.section}"
