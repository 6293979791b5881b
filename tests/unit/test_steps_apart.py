"""Steps apart: what is asked of Redis is never cancelled by who asked for it."""

import asyncio

import anyio
import pytest

from gateway.adapters.redis.apart import StepsApart

PATIENCE_S = 20
AT_ONCE = 16


class Step:
    """Waits until it may go on; counts those that are under way."""

    running = 0

    def __init__(self) -> None:
        self.begun, self.over, self.go_on = anyio.Event(), anyio.Event(), anyio.Event()

    async def take(self) -> str:
        Step.running += 1
        self.begun.set()
        try:
            await self.go_on.wait()
        finally:
            Step.running -= 1
        self.over.set()
        return "done"


async def test_a_step_goes_on_when_who_asked_for_it_leaves() -> None:
    """And what has gone wrong then troubles nobody."""
    steps, step = StepsApart(), Step()
    with anyio.fail_after(PATIENCE_S):
        asking = asyncio.create_task(steps.run(step.take()))
        await step.begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        assert not step.over.is_set()
        step.go_on.set()
        await steps.ended(PATIENCE_S)
        assert step.over.is_set()


async def test_so_many_are_under_way_and_who_waits_in_vain_takes_no_turn() -> None:
    """A step that nobody waits for any more when its turn comes isn't begun."""
    steps = StepsApart()
    with anyio.fail_after(PATIENCE_S):
        first = [Step() for _ in range(AT_ONCE)]
        asking = [asyncio.create_task(steps.run(step.take())) for step in first]
        for step in first:
            await step.begun.wait()
        late, last = Step(), Step()
        giving_up = asyncio.create_task(steps.run(late.take()))
        waiting = asyncio.create_task(steps.run(last.take()))
        await asyncio.wait({giving_up, waiting}, timeout=0)
        assert Step.running == AT_ONCE
        giving_up.cancel()
        for step in (*first, last):
            step.go_on.set()
        assert await asyncio.gather(*asking, waiting) == ["done"] * (AT_ONCE + 1)
        await asyncio.wait({giving_up})
    assert not late.begun.is_set()
    assert Step.running == 0


async def test_a_step_that_fails_fails_its_caller() -> None:
    """With its own error; the next one isn't kept waiting."""

    async def fail() -> None:
        raise ConnectionError("gone")

    steps = StepsApart()
    for _ in range(2 * AT_ONCE):
        with pytest.raises(ConnectionError, match="gone"):
            await steps.run(fail())
