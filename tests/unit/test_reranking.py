"""Step 12: who may be asked, how a reranker that can't help is skipped, and what order comes of it."""

import itertools
from collections.abc import Sequence

import anyio
import pytest

from gateway.adapters.memory.models import Gate
from gateway.adapters.memory.rerank import WordReranker
from gateway.admission.breaker import Breaker, BreakerState
from gateway.admission.bulkhead import Bulkhead
from gateway.answer.reranking import MOST, Ranked, Reranking
from gateway.context import Deadline
from gateway.errors import GatewayError, RerankerUnavailable
from gateway.observe.hooks import RerankSkip, Stage
from gateway.observe.metrics import Metrics
from gateway.observe.trace import Trace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.rerank import RerankRefused
from gateway.retrieval.risk import INJECTION_LIKE, RiskPolicy
from tests.harness.chunks import sample_chunk

PATIENCE_S = 10
LONG_MS = 60_000
FAILURES = 2


def candidate(content: str, sensitivity: int = 0, risk: tuple[str, ...] = ()) -> Candidate:
    chunk = sample_chunk(content, name=content, sensitivity=sensitivity, risk=risk)
    return Candidate(chunk, 0.5, dense=True, raw_score=0.01, score_label="rrf", hit_reason="dense #1")


class Bench:
    """One reranker in its step, and a question to it."""

    def __init__(
        self,
        reranker: WordReranker,
        *,
        cap_ms: int = LONG_MS,
        places: int = 1,
        risk: RiskPolicy = RiskPolicy.MARK,
        guarded: bool = True,
    ) -> None:
        self.reranker = reranker
        self.now = 0.0
        self.bulkhead = Bulkhead("rerank", places, wait_ms=0)
        self.breaker = Breaker(FAILURES, open_s=5, clock=lambda: self.now)
        breaker = self.breaker if guarded else None
        self.step = Reranking(reranker, self.bulkhead, breaker, cap_ms=cap_ms, risk=risk)

    async def run(self, *contents: str | Candidate, total_ms: float = LONG_MS) -> Ranked:
        trace = Trace("req", "trace", Metrics(close_reasons=(), statuses=()))
        candidates = [candidate(c) if isinstance(c, str) else c for c in contents]
        nothing = TermStatistics(0, {})
        with anyio.fail_after(PATIENCE_S):
            found = await self.step.run(trace, "which one", candidates, nothing, Deadline.after(total_ms))
        self.stage_ms = trace.stage_ms
        assert self.bulkhead.in_use == 0
        return found


def contents(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.chunk.content for candidate in candidates]


async def test_the_rerankers_numbers_are_the_order() -> None:
    """The best first; each says that it was reranked and where it came."""
    bench = Bench(WordReranker(fixed={"a": -3.0, "b": 7.5, "c": 0.0}))
    found = await bench.run("a", "b", "c")
    assert (found.reranker, found.skipped) == ("words/1", None)
    assert [(c.chunk.content, c.raw_score, c.score_label, c.hit_reason) for c in found.candidates] == [
        ("b", 7.5, "rerank", "dense #1, rerank #1"),
        ("c", 0.0, "rerank", "dense #1, rerank #2"),
        ("a", -3.0, "rerank", "dense #1, rerank #3"),
    ]
    assert Stage.RERANK.value in bench.stage_ms


async def test_equals_stay_as_they_were() -> None:
    """Whichever order that is."""
    for order in itertools.permutations("abc"):
        found = await Bench(WordReranker(fixed=dict.fromkeys("abc", 0.5))).run(*order)
        assert contents(found.candidates) == list(order)


FAULTS: dict[str, tuple[GatewayError, RerankSkip]] = {
    "it failed": (RerankerUnavailable("down"), RerankSkip.UNAVAILABLE),
    "it refused": (RerankRefused("too long"), RerankSkip.UNAVAILABLE),
}


@pytest.mark.parametrize(("error", "skip"), FAULTS.values(), ids=FAULTS)
async def test_a_reranker_that_fails_changes_nothing(error: GatewayError, skip: RerankSkip) -> None:
    """Order, numbers and labels are those of the search."""
    found = await Bench(WordReranker(error=error)).run("a", "b")
    assert found == Ranked((candidate("a"), candidate("b")), skipped=skip)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
async def test_a_number_that_orders_nothing_is_a_failure(number: float) -> None:
    """A NaN among them would leave an order that depends on where it stood."""
    found = await Bench(WordReranker(fixed={"a": 1.0, "b": number})).run("a", "b")
    assert (found.reranker, found.skipped) == ("", RerankSkip.UNAVAILABLE)
    assert contents(found.candidates) == ["a", "b"]


async def test_too_few_numbers_are_a_failure() -> None:
    """They would be given to the wrong passages."""

    class Short(WordReranker):
        async def scores(self, *arguments: object) -> list[float]:
            return [1.0]

    assert (await Bench(Short()).run("a", "b")).skipped is RerankSkip.UNAVAILABLE


async def test_a_slow_one_is_skipped_at_its_cap() -> None:
    """The question's own time goes on."""
    gate = Gate()
    bench = Bench(WordReranker(hold=gate), cap_ms=1)
    assert (await bench.run("a")).skipped is RerankSkip.TOO_SLOW
    assert gate.reached.is_set()


async def test_a_passage_above_its_clearance_keeps_everything_here() -> None:
    """Not even the others are sent: without one of them there is no order of all."""
    bench = Bench(WordReranker(max_sensitivity=1))
    found = await bench.run("a", candidate("b", sensitivity=2))
    assert (found.skipped, bench.reranker.seen) == (RerankSkip.NOT_CLEARED, [])
    assert (await bench.run("a", candidate("b", sensitivity=1))).skipped is None


async def test_withheld_passages_stay_here_and_come_last() -> None:
    """In the order they had, with the search's numbers."""
    bench = Bench(WordReranker(fixed={"a": 1.0, "c": 2.0}), risk=RiskPolicy.WITHHOLD)
    risky = candidate("b", sensitivity=3, risk=(INJECTION_LIKE,))
    found = await bench.run(risky, "a", "c")
    assert contents(found.candidates) == ["c", "a", "b"]
    assert found.candidates[-1] == risky
    assert contents(bench.reranker.seen[0]) == ["a", "c"]


async def test_nothing_to_rank_is_not_asked() -> None:
    """Nor is it a reason for other thresholds."""
    bench = Bench(WordReranker())
    found = await bench.run()
    assert (found, bench.reranker.seen) == (Ranked((), "words/1"), [])


async def test_a_full_house_is_no_reason_to_wait_or_to_fail() -> None:
    """Whoever finds all places taken goes on in the fused order."""
    bench = Bench(WordReranker())
    held = await bench.bulkhead.acquire(Deadline.after(LONG_MS))
    trace = Trace("req", "trace", Metrics(close_reasons=(), statuses=()))
    found = await bench.step.run(trace, "q", [candidate("a")], TermStatistics(0, {}), Deadline.after(LONG_MS))
    assert (found.skipped, bench.reranker.seen) == (RerankSkip.OVERLOADED, [])
    held.release()
    assert (await bench.run("a")).skipped is None


async def test_one_that_keeps_failing_is_left_alone_until_a_probe_works() -> None:
    """As an answer model is."""
    bench = Bench(WordReranker(error=RerankerUnavailable("down")))
    for _ in range(FAILURES):
        assert (await bench.run("a")).skipped is RerankSkip.UNAVAILABLE
    assert (await bench.run("a")).skipped is RerankSkip.LEFT_ALONE
    assert len(bench.reranker.seen) == FAILURES
    bench.now, bench.reranker.error = 5.0, None
    assert (await bench.run("a")).skipped is None
    assert bench.breaker.state is BreakerState.CLOSED


async def test_a_question_it_refuses_takes_it_from_nobody_else() -> None:
    """Else one asker of long questions could switch it off for all."""
    bench = Bench(WordReranker(error=RerankRefused("too long")))
    for _ in range(3 * FAILURES):
        await bench.run("a")
    assert bench.breaker.state is BreakerState.CLOSED


async def test_a_question_out_of_time_is_not_the_rerankers_fault() -> None:
    """Its own cap is."""
    bench = Bench(WordReranker(hold=Gate()))
    for _ in range(2 * FAILURES):
        assert (await bench.run("a", total_ms=1)).skipped is RerankSkip.TOO_SLOW
    assert bench.breaker.state is BreakerState.CLOSED
    bench = Bench(WordReranker(hold=Gate()), cap_ms=1)
    for _ in range(FAILURES):
        await bench.run("a")
    assert bench.breaker.state is BreakerState.OPEN


async def test_a_cancel_gives_everything_back() -> None:
    """The place, and the probe of a breaker that was half open."""
    gate = Gate()
    bench = Bench(WordReranker(error=RerankerUnavailable("down")))
    for _ in range(FAILURES):
        await bench.run("a")
    bench.now = 5.0
    bench.reranker = WordReranker(hold=gate)
    bench.step = Reranking(bench.reranker, bench.bulkhead, bench.breaker, cap_ms=LONG_MS)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(bench.run, "a")
            await gate.reached.wait()
            assert not bench.breaker.admits
            group.cancel_scope.cancel()
    assert bench.bulkhead.in_use == 0
    assert bench.breaker.admits


async def test_one_without_a_breaker_is_asked_each_time() -> None:
    """In this process it is slow when its callers are many: that must not switch it off for those after."""
    bench = Bench(WordReranker(hold=Gate()), cap_ms=1, guarded=False)
    for _ in range(2 * FAILURES):
        assert (await bench.run("a")).skipped is RerankSkip.TOO_SLOW
    bench = Bench(WordReranker(error=RerankerUnavailable("down")), guarded=False)
    for _ in range(2 * FAILURES):
        assert (await bench.run("a")).skipped is RerankSkip.UNAVAILABLE
    bench.reranker.error = None
    assert (await bench.run("a")).skipped is None


async def test_no_more_than_the_first_are_sent() -> None:
    """The rest stay behind them in their order, before those that are withheld."""
    bench = Bench(WordReranker(fixed={f"{n}": n for n in range(MOST + 2)}), risk=RiskPolicy.WITHHOLD)
    risky = candidate("risky", risk=(INJECTION_LIKE,))
    found = await bench.run(risky, *(f"{n}" for n in range(MOST + 2)))
    assert len(bench.reranker.seen[0]) == MOST
    assert contents(found.candidates)[:2] == [f"{MOST - 1}", f"{MOST - 2}"]
    assert contents(found.candidates)[MOST:] == [f"{MOST}", f"{MOST + 1}", "risky"]
    assert [c.score_label for c in found.candidates[MOST:]] == ["rrf"] * 3
