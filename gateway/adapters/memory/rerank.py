"""A twin of the reranker: counts words, or says what a test fixed; held and failing where a test says."""

import math
from collections.abc import Mapping, Sequence

import anyio
import anyio.lowlevel

from gateway.adapters.memory.models import Gate
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, GatewayError
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics


class WordReranker:
    """The share of the question's words that a passage's content holds; ``fixed`` maps contents to numbers.

    ``hold`` and ``error`` act on every call; ``seen`` has the candidates of each.
    """

    def __init__(
        self,
        *,
        version: str = "words/1",
        max_sensitivity: int = 3,
        fixed: Mapping[str, float] | None = None,
        hold: Gate | None = None,
        error: GatewayError | None = None,
    ) -> None:
        self._version = version
        self._max_sensitivity = max_sensitivity
        self._fixed = dict(fixed or {})
        self._hold = hold
        self.error = error
        self.seen: list[tuple[Candidate, ...]] = []

    @property
    def version(self) -> str:
        return self._version

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    @property
    def in_process(self) -> bool:
        return False

    async def scores(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> list[float]:
        self.seen.append(tuple(candidates))
        deadline.budget("rerank", math.inf)
        if self._hold is not None:
            with anyio.move_on_after(deadline.remaining()) as scope:
                await self._hold.wait()
            if scope.cancelled_caught:
                raise DeadlineExceeded("rerank")
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        words = set(question.casefold().split())
        return [self._score(words, candidate.chunk.content) for candidate in candidates]

    def _score(self, words: set[str], content: str) -> float:
        if content in self._fixed:
            return self._fixed[content]
        return len(words & set(content.casefold().split())) / max(1, len(words))
