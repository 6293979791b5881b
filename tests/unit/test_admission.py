"""Rates and stages: who is turned away at once, and what a stage may take."""

import anyio
import anyio.lowlevel
import pytest

from gateway.access.principal import Principal
from gateway.admission.rate import RequestRate
from gateway.admission.stage import stage_time
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, RateLimited, SpentBudget

PATIENCE_S = 10
LONG = 60_000


def principal(tenant: str, subject: str) -> Principal:
    return Principal(tenant, subject, frozenset(), frozenset({"ask"}), 1e10)


async def test_each_caller_has_a_bucket_of_his_own() -> None:
    """The n+1st request within the minute is refused with the time of one drop; others go on."""
    rate = RequestRate(per_minute=4)
    ann = principal("acme", "ann")
    for _ in range(4):
        await rate.admit(ann)
    with pytest.raises(RateLimited) as caught:
        await rate.admit(ann)
    assert caught.value.retry_after_ms == 15_000
    assert caught.value.budget == SpentBudget("requests", limit=4, window_s=60, remaining=0, reset_s=15)
    await rate.admit(principal("acme", "bob"))
    await rate.admit(principal("globex", "ann"))


async def test_callers_at_once_share_one_bucket() -> None:
    """No two of them pass between the look and the count."""
    rate = RequestRate(per_minute=5)
    outcomes: list[bool] = []

    async def admit() -> None:
        try:
            await rate.admit(principal("acme", "ann"))
        except RateLimited:
            outcomes.append(False)
        else:
            outcomes.append(True)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(admit)
    assert sorted(outcomes) == [False] * 15 + [True] * 5


async def test_the_number_of_buckets_is_bounded() -> None:
    """A flood of names forgets the least recent ones, not the one who is asking now."""
    rate = RequestRate(per_minute=1)
    for number in range(10_050):
        await rate.admit(principal("acme", f"user-{number}"))
    assert len(vars(rate)["_limiters"]) == 10_000
    with pytest.raises(RateLimited):
        await rate.admit(principal("acme", "user-10049"))


# -- stages ----------------------------------------------------------------------------------------


async def test_a_stage_is_cut_to_what_is_left_of_the_whole() -> None:
    """Its own deadline is the shorter of both; running out names the stage."""
    with stage_time(Deadline.after(50), "retrieval", 10_000) as stage:
        assert stage.remaining() <= 0.05
    for deadline_ms, cap_ms in ((LONG, 1), (1, LONG)):
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(DeadlineExceeded) as caught:
                with stage_time(Deadline.after(deadline_ms), "retrieval", cap_ms):
                    await anyio.sleep_forever()
        assert caught.value.stage == "retrieval"


async def test_a_stage_that_comes_too_late_is_not_begun() -> None:
    """Nothing left: the block doesn't run."""
    with pytest.raises(DeadlineExceeded):
        with stage_time(Deadline.after(0), "embedding", 100):
            pytest.fail("the block ran")


async def test_a_cancel_from_outside_is_no_timeout() -> None:
    """It passes through as what it is."""
    with anyio.CancelScope() as outer:
        with stage_time(Deadline.after(LONG), "embedding", LONG):
            outer.cancel()
            await anyio.lowlevel.checkpoint()
    assert outer.cancelled_caught
