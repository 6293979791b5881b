"""Bulkheads: who gets a place, who waits and for how long, and that no place is ever lost."""

import asyncio
import math
import random

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskGroup

from gateway.admission.bulkhead import Bulkhead, Permit
from gateway.context import Deadline
from gateway.errors import InvariantViolated, Overloaded
from gateway.settings import Settings

PATIENCE_S = 10
LONG = 60_000


class Clock:
    """Stands still until a test moves it; seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_while() -> Deadline:
    return Deadline.after(LONG)


async def use(bulkhead: Bulkhead, clock: Clock, seconds: float) -> None:
    """One place, held for that long."""
    with await bulkhead.acquire(a_while()):
        clock.now += seconds


async def test_places_are_given_until_there_are_none() -> None:
    """Without a wait budget the next caller is turned away at once, and told by whom."""
    bulkhead = Bulkhead("generation", 2, wait_ms=0)
    permits = [await bulkhead.acquire(a_while()) for _ in range(2)]
    with pytest.raises(Overloaded) as caught:
        await bulkhead.acquire(a_while())
    assert caught.value.stage == "generation"
    with pytest.raises(Overloaded):
        bulkhead.announce(a_while()).release()
    permits[0].release()
    bulkhead.announce(a_while()).release()
    assert isinstance(await bulkhead.acquire(a_while()), Permit)


async def test_a_permit_is_given_back_once() -> None:
    """Releasing twice, or in a block and by hand, frees one place."""
    bulkhead = Bulkhead("retrieval", 1, 0)
    with await bulkhead.acquire(a_while()) as permit:
        assert bulkhead.in_use == 1
        permit.release()
        permit.release()
        assert bulkhead.in_use == 0
        with await bulkhead.acquire(a_while()):
            permit.release()
            assert bulkhead.in_use == 1
    assert bulkhead.in_use == 0


async def wait(bulkhead: Bulkhead, name: int, served: list[int]) -> None:
    with await bulkhead.acquire(a_while()):
        served.append(name)
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("stage", ["embedding", "retrieval", "rerank"])
async def test_twenty_at_once_are_all_served_on_the_defaults(stage: str) -> None:
    """More than there are places, but each takes only 20 ms: nobody need be turned away."""
    settings, clock = Settings(), Clock()
    size, wait_ms = getattr(settings, f"{stage}_concurrency"), getattr(settings, f"{stage}_wait_ms")
    bulkhead = Bulkhead(stage, size, wait_ms, clock)
    await use(bulkhead, clock, 0.02)
    served: list[int] = []
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(wait, bulkhead, number, served)
    assert served == list(range(20))
    assert (bulkhead.in_use, bulkhead.waiting) == (0, 0)


async def fill(bulkhead: Bulkhead, tasks: TaskGroup, waiting: int) -> list[Permit]:
    """All places taken, and that many waiting."""
    held = [await bulkhead.acquire(a_while()) for _ in range(bulkhead.size - bulkhead.in_use)]
    for number in range(waiting):
        tasks.start_soon(wait, bulkhead, number, [])
    await anyio.wait_all_tasks_blocked()
    return held


@pytest.mark.parametrize(("deadline_ms", "fit"), [(LONG, 5), (240, 3), (120, 1), (60, 0), (0, 0)])
async def test_whoever_would_wait_too_long_is_turned_away_before_he_waits(deadline_ms: int, fit: int) -> None:
    """Two places of usually 125 ms: each one ahead costs 62.5 ms, of a budget of 375 or of the deadline."""
    clock = Clock()
    bulkhead = Bulkhead("retrieval", 2, 375, clock)
    await use(bulkhead, clock, 0.125)
    async with anyio.create_task_group() as tasks:
        held = await fill(bulkhead, tasks, waiting=0)
        for ahead in range(fit):
            bulkhead.announce(Deadline.after(deadline_ms)).release()
            tasks.start_soon(wait, bulkhead, ahead, [])
            await anyio.wait_all_tasks_blocked()
        assert bulkhead.waiting == fit
        with pytest.raises(Overloaded):
            bulkhead.announce(Deadline.after(deadline_ms)).release()
        with pytest.raises(Overloaded) as caught:
            await bulkhead.acquire(Deadline.after(deadline_ms))
        assert (caught.value.retry_after_ms, bulkhead.waiting) == (math.ceil(62.5 * (fit + 1)), fit)
        for permit in held:
            permit.release()


async def test_places_that_hang_turn_newcomers_away_before_any_is_given_back() -> None:
    """The usual hold was short, but those that run now have lasted longer than anybody may wait."""
    clock = Clock()
    bulkhead = Bulkhead("retrieval", 2, 200, clock)
    await use(bulkhead, clock, 0.01)
    held = [await bulkhead.acquire(a_while()) for _ in range(2)]
    bulkhead.announce(a_while()).release()
    clock.now += 1
    with pytest.raises(Overloaded) as caught:
        bulkhead.announce(a_while()).release()
    assert caught.value.retry_after_ms == 500
    for permit in held:
        permit.release()
    with await bulkhead.acquire(a_while()), await bulkhead.acquire(a_while()):
        assert bulkhead.in_use == 2


async def test_the_usual_hold_follows_what_is_seen() -> None:
    """After one outlier and many short holds, waiting is worth it again."""
    clock = Clock()
    bulkhead = Bulkhead("retrieval", 1, 200, clock)
    await use(bulkhead, clock, 10)
    with await bulkhead.acquire(a_while()), pytest.raises(Overloaded):
        bulkhead.announce(a_while()).release()
    for _ in range(60):
        await use(bulkhead, clock, 0.02)
    with await bulkhead.acquire(a_while()):
        bulkhead.announce(a_while()).release()


async def test_the_queue_is_bounded_when_nothing_is_known() -> None:
    """Sixteen wait for each place; one more is turned away with a guess."""
    bulkhead = Bulkhead("embedding", 2, LONG, Clock())
    async with anyio.create_task_group() as tasks:
        held = await fill(bulkhead, tasks, waiting=32)
        with pytest.raises(Overloaded) as caught:
            await bulkhead.acquire(a_while())
        assert (caught.value.retry_after_ms, bulkhead.waiting) == (1000, 32)
        for permit in held:
            permit.release()
    assert (bulkhead.in_use, bulkhead.waiting) == (0, 0)


@pytest.mark.parametrize(("wait_ms", "deadline_ms"), [(1, LONG), (LONG, 1)])
async def test_a_wait_ends_with_its_budget_or_with_the_deadline(wait_ms: int, deadline_ms: int) -> None:
    """Whichever is shorter; the place in the queue is free again."""
    bulkhead = Bulkhead("generation", 1, wait_ms, Clock())
    held = await bulkhead.acquire(a_while())
    with anyio.fail_after(PATIENCE_S):
        with pytest.raises(Overloaded):
            await bulkhead.acquire(Deadline.after(deadline_ms))
    assert (bulkhead.in_use, bulkhead.waiting) == (1, 0)
    held.release()
    assert bulkhead.in_use == 0


class Schedule:
    """Callers that come, work, leave and are cancelled in a random order, turn by turn."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.bulkhead = Bulkhead("generation", self._rng.randint(1, 3), LONG, Clock())
        self.inside = 0
        self._callers: list[tuple[anyio.CancelScope, anyio.Event]] = []

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(self._rng.randint(2, 9)):
                scope, work = anyio.CancelScope(), anyio.Event()
                self._callers.append((scope, work))
                tasks.start_soon(self._call, scope, work, self._rng.randrange(4), self._deadline_ms())
            for _ in range(40):
                self._disturb()
                for _ in range(self._rng.randrange(3)):
                    await anyio.lowlevel.checkpoint()
            for _, work in self._callers:
                work.set()

    def _deadline_ms(self) -> float:
        return self._rng.choice([0, 0.05, 1, LONG, LONG, LONG])

    def _disturb(self) -> None:
        """Lets one go on, cancels one, or both: a place may be handed to a caller in his last moment."""
        scope, _ = self._rng.choice(self._callers)
        _, work = self._rng.choice(self._callers)
        if self._rng.random() < 0.5:
            work.set()
        if self._rng.random() < 0.3:
            scope.cancel()

    async def _call(
        self, scope: anyio.CancelScope, work: anyio.Event, turns: int, deadline_ms: float
    ) -> None:
        with scope:
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            try:
                permit = await self.bulkhead.acquire(Deadline.after(deadline_ms))
            except Overloaded:
                return
            with permit:
                self.inside += 1
                try:
                    assert self.inside <= self.bulkhead.size
                    await work.wait()
                finally:
                    self.inside -= 1


@pytest.mark.parametrize("block", range(15))
async def test_a_caller_cancelled_at_any_moment_leaks_nothing(block: int) -> None:
    """Random arrivals, releases, cancels and deadlines; afterwards every place is free and usable."""
    for seed in range(20 * block, 20 * block + 20):
        schedule = Schedule(seed)
        with anyio.fail_after(PATIENCE_S):
            await schedule.run()
        bulkhead = schedule.bulkhead
        assert (bulkhead.in_use, bulkhead.waiting, schedule.inside) == (0, 0, 0), seed
        permits = [await bulkhead.acquire(Deadline.after(0)) for _ in range(bulkhead.size)]
        assert bulkhead.in_use == len(permits), seed


@pytest.mark.parametrize("cancel_first", [False, True])
async def test_a_place_handed_to_a_waiter_that_is_cancelled_in_the_same_turn_goes_to_the_next(
    cancel_first: bool,
) -> None:
    """The moment between being handed a place and running again is the one where places get lost."""
    bulkhead = Bulkhead("sessions", 1, LONG, Clock())
    held = await bulkhead.acquire(a_while())
    served: list[int] = []
    with anyio.fail_after(PATIENCE_S):
        first = asyncio.create_task(wait(bulkhead, 1, served))
        await anyio.wait_all_tasks_blocked()
        second = asyncio.create_task(wait(bulkhead, 2, served))
        await anyio.wait_all_tasks_blocked()
        if cancel_first:
            first.cancel()
        held.release()
        first.cancel()
        await asyncio.wait({first, second})
    assert first.cancelled()
    assert (served, bulkhead.in_use, bulkhead.waiting) == ([2], 0, 0)


async def test_those_who_are_on_their_way_count_as_ahead() -> None:
    """Each announced caller will want a place: the one behind them is turned away before he does anything."""
    clock = Clock()
    bulkhead = Bulkhead("generation", 2, 100, clock)
    await use(bulkhead, clock, 0.125)
    tickets = [bulkhead.announce(a_while()) for _ in range(3)]  # two places, and 62.5 ms behind them
    with pytest.raises(Overloaded) as caught:
        bulkhead.announce(a_while())
    assert caught.value.retry_after_ms == 125
    assert bulkhead.announced == 3
    tickets.pop().release()
    tickets.append(bulkhead.announce(a_while()))
    held = [await ticket.acquire(a_while()) for ticket in tickets[:2]]
    assert (bulkhead.in_use, bulkhead.announced) == (2, 1)
    for permit in held:
        permit.release()
    with await tickets[2].acquire(a_while()):
        assert bulkhead.announced == 0


async def test_those_who_usually_do_not_come_turn_nobody_away() -> None:
    """Most questions here are refused for want of evidence, and need no model."""
    clock = Clock()
    bulkhead = Bulkhead("generation", 1, 100, clock)
    await use(bulkhead, clock, 10)
    for _ in range(100):
        bulkhead.announce(a_while()).release()
    tickets = [bulkhead.announce(a_while()) for _ in range(10)]
    assert bulkhead.announced == 10
    for ticket in tickets:
        ticket.release()
        ticket.release()
    assert bulkhead.announced == 0


async def test_a_ticket_is_used_once() -> None:
    """Whoever holds it gives back nothing that he has used."""
    bulkhead = Bulkhead("generation", 2, 100)
    ticket = bulkhead.announce(a_while())
    with await ticket.acquire(a_while()):
        ticket.release()
        assert (bulkhead.in_use, bulkhead.announced) == (1, 0)
        with pytest.raises(InvariantViolated):
            await ticket.acquire(a_while())
