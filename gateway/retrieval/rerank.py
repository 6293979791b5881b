"""Reranking: a second, closer look at the permitted candidates of one search."""

from collections.abc import Sequence
from typing import Protocol

from gateway.context import Deadline
from gateway.errors import RerankerUnavailable
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics


class RerankRefused(RerankerUnavailable):
    """It doesn't accept this call; another question may be welcome."""


class Reranker(Protocol):
    """Puts one number on each candidate; it sees only what the re-check has let through."""

    @property
    def version(self) -> str:
        """What its numbers depend on: thresholds were fitted for it, and cached answers are kept under it."""
        ...

    @property
    def max_sensitivity(self) -> int:
        """The highest sensitivity of passages that may be sent to it."""
        ...

    @property
    def in_process(self) -> bool:
        """Whether it works on this process's own cores, which do one question at a time: when it is slow
        then from its callers, and leaving it alone would mend nothing.
        """
        ...

    async def scores(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Sequence[float]:
        """One finite number a candidate, in their order, higher is better; only their order within one
        question means anything. Raises RerankerUnavailable, DeadlineExceeded (stage ``rerank``).
        """
        ...
