"""Step 12: the reranker's order where it can be had in time, the fused order where it can't."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.admission.breaker import Breaker
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, Overloaded, RerankerUnavailable
from gateway.observe.hooks import RerankSkip, Stage
from gateway.observe.trace import Trace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.rerank import Reranker, RerankRefused
from gateway.retrieval.risk import RiskPolicy

#: so many of the candidates are ranked, the first: what a call may cost, wherever it goes
MOST = 64
#: the label of numbers that a reranker made
RERANKED = "rerank"


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates in their last order. ``reranker`` is the version that made it, '' for the fused order;
    ``skipped`` says why a reranker that there is has not made it.
    """

    candidates: tuple[Candidate, ...]
    reranker: str = ""
    skipped: RerankSkip | None = None


class Reranking:
    """One reranker, with its places, its time and maybe a breaker. Optional: nothing that it raises goes on.

    Passages beyond the first MOST stay behind, unscored, in the order they had; those that ``risk`` keeps
    from models come last.
    """

    def __init__(
        self,
        reranker: Reranker,
        bulkhead: Bulkhead,
        breaker: Breaker | None,
        *,
        cap_ms: int,
        risk: RiskPolicy = RiskPolicy.MARK,
    ) -> None:
        self._reranker = reranker
        self._bulkhead = bulkhead
        self._breaker = breaker
        self._cap_ms = cap_ms
        self._risk = risk

    @property
    def version(self) -> str:
        return self._reranker.version

    async def run(
        self,
        trace: Trace,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Ranked:
        """Of permitted candidates only: they may leave the process here."""
        held_back = [c for c in candidates if self._risk.withholds(c.chunk.risk)]
        free = [c for c in candidates if not self._risk.withholds(c.chunk.risk)]
        sent, behind = free[:MOST], free[MOST:]
        if not sent:
            return Ranked(tuple(candidates), self.version)
        scores = await self._scores(trace, question, sent, statistics, deadline)
        if isinstance(scores, RerankSkip):
            return Ranked(tuple(candidates), skipped=scores)
        return Ranked((*in_order(sent, scores), *behind, *held_back), self.version)

    async def _scores(
        self,
        trace: Trace,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Sequence[float] | RerankSkip:
        """One finite number a candidate, or why there are none."""
        if any(c.chunk.sensitivity > self._reranker.max_sensitivity for c in candidates):
            return RerankSkip.NOT_CLEARED
        if self._breaker is not None and not self._breaker.admits:
            return RerankSkip.LEFT_ALONE
        with trace.stage(Stage.RERANK):
            try:
                with await self._bulkhead.acquire(deadline):
                    return await self._call(question, candidates, statistics, deadline)
            except Overloaded:
                return RerankSkip.OVERLOADED
            except DeadlineExceeded:
                return RerankSkip.TOO_SLOW
            except RerankerUnavailable:
                return RerankSkip.UNAVAILABLE

    async def _call(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Sequence[float] | RerankSkip:
        """Tells a breaker how it went, however it ends."""
        if self._breaker is None:
            return await self._asked(question, candidates, statistics, deadline)
        trial = self._breaker.admit()
        if trial is None:
            return RerankSkip.LEFT_ALONE
        try:
            scores = await self._asked(question, candidates, statistics, deadline)
            trial.succeeded()
            return scores
        except RerankRefused:
            raise  # says nothing about the next call, which may be a shorter one
        except RerankerUnavailable:
            trial.failed()
            raise
        except DeadlineExceeded:
            if deadline.remaining() > 0:  # it was the reranker's time that ran out, not the question's
                trial.failed()
            raise
        finally:
            trial.release()

    async def _asked(
        self,
        question: str,
        candidates: Sequence[Candidate],
        statistics: TermStatistics,
        deadline: Deadline,
    ) -> Sequence[float]:
        with stage_time(deadline, "rerank", self._cap_ms) as stage:
            scores = await self._reranker.scores(question, candidates, statistics, stage)
        _check(scores, len(candidates))
        return scores


def in_order(candidates: Sequence[Candidate], scores: Sequence[float]) -> tuple[Candidate, ...]:
    """Best first; those with equal numbers stay as they were."""
    ranked = sorted(zip(candidates, scores, strict=True), key=lambda pair: -pair[1])
    return tuple(
        replace(
            candidate,
            raw_score=score,
            score_label=RERANKED,
            hit_reason=f"{candidate.hit_reason}, rerank #{place}",
        )
        for place, (candidate, score) in enumerate(ranked, start=1)
    )


def _check(scores: Sequence[float], count: int) -> None:
    """A NaN would leave an order that depends on where it stood."""
    if len(scores) != count or not all(map(math.isfinite, scores)):
        raise RerankerUnavailable("the reranker didn't make one finite number a passage")
