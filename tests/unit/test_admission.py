"""Places, rates and quotas: who gets in, who is turned away at once, and that nothing ever leaks."""

import random

import anyio
import anyio.lowlevel
import pytest

from gateway.access.principal import Principal
from gateway.admission.bulkhead import Bulkhead, Permit
from gateway.admission.quota import LocalQuota, ReservationKey
from gateway.admission.rate import RequestRate
from gateway.admission.stage import stage_time
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, Overloaded, QuotaExceeded, RateLimited

PATIENCE_S = 10
LONG = 60_000


async def test_places_are_given_until_there_are_none() -> None:
    """Without a wait budget the next caller is turned away at once, and told by whom and for how long."""
    bulkhead = Bulkhead("generation", 2, wait_ms=0)
    permits = [await bulkhead.acquire(Deadline.after(LONG)) for _ in range(2)]
    with pytest.raises(Overloaded) as caught:
        await bulkhead.acquire(Deadline.after(LONG))
    assert (caught.value.stage, caught.value.retry_after_ms) == ("generation", 1000)
    with pytest.raises(Overloaded):
        bulkhead.check_queue(Deadline.after(LONG))
    permits[0].release()
    bulkhead.check_queue(Deadline.after(LONG))
    assert isinstance(await bulkhead.acquire(Deadline.after(LONG)), Permit)


async def test_a_permit_is_given_back_once() -> None:
    """Releasing twice, or in a block and by hand, frees one place."""
    bulkhead = Bulkhead("retrieval", 1, 0)
    with await bulkhead.acquire(Deadline.after(LONG)) as permit:
        assert bulkhead.in_use == 1
        permit.release()
        permit.release()
        assert bulkhead.in_use == 0
        with await bulkhead.acquire(Deadline.after(LONG)):
            permit.release()
            assert bulkhead.in_use == 1
    assert bulkhead.in_use == 0


async def test_at_most_as_many_wait_as_there_are_places() -> None:
    """The queue is bounded: one more is turned away before it waits at all."""
    bulkhead = Bulkhead("embedding", 2, LONG)
    held = [await bulkhead.acquire(Deadline.after(LONG)) for _ in range(2)]
    got: list[Permit] = []

    async def wait() -> None:
        got.append(await bulkhead.acquire(Deadline.after(LONG)))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert bulkhead.waiting == 2
            with pytest.raises(Overloaded):
                bulkhead.check_queue(Deadline.after(LONG))
            with pytest.raises(Overloaded):
                await bulkhead.acquire(Deadline.after(LONG))
            for permit in held:
                permit.release()
    assert (len(got), bulkhead.in_use, bulkhead.waiting) == (2, 2, 0)


@pytest.mark.parametrize(("wait_ms", "deadline_ms"), [(1, LONG), (LONG, 1), (LONG, 0)])
async def test_a_wait_ends_with_its_budget_or_with_the_deadline(wait_ms: int, deadline_ms: int) -> None:
    """Whichever is shorter; the place in the queue is free again."""
    bulkhead = Bulkhead("generation", 1, wait_ms)
    held = await bulkhead.acquire(Deadline.after(LONG))
    with anyio.fail_after(PATIENCE_S):
        with pytest.raises(Overloaded):
            await bulkhead.acquire(Deadline.after(deadline_ms))
    assert (bulkhead.in_use, bulkhead.waiting) == (1, 0)
    held.release()
    assert bulkhead.in_use == 0


async def use(bulkhead: Bulkhead, turns: int, work: anyio.Event, inside: list[int]) -> None:
    """One caller: after some turns asks for a place, works until told, gives it back."""
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    try:
        with await bulkhead.acquire(Deadline.after(LONG)):
            inside.append(1)
            assert len(inside) <= bulkhead.size
            try:
                await work.wait()
            finally:
                inside.pop()
    except Overloaded:
        return


@pytest.mark.parametrize("seed", range(150))
async def test_a_caller_cancelled_at_any_moment_leaks_nothing(seed: int) -> None:
    """Random arrivals, releases and cancels, turn by turn; afterwards every place is free and usable."""
    rng = random.Random(seed)
    bulkhead = Bulkhead("generation", rng.randint(1, 3), LONG)
    inside: list[int] = []
    callers: list[tuple[anyio.CancelScope, anyio.Event]] = []

    async def caller(scope: anyio.CancelScope, turns: int, work: anyio.Event) -> None:
        with scope:
            await use(bulkhead, turns, work, inside)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(rng.randint(2, 9)):
                scope, work = anyio.CancelScope(), anyio.Event()
                callers.append((scope, work))
                tasks.start_soon(caller, scope, rng.randrange(4), work)
            for _ in range(40):
                scope, work = rng.choice(callers)
                if rng.random() < 0.5:
                    work.set()
                if rng.random() < 0.3:
                    scope.cancel()
                for _ in range(rng.randrange(3)):
                    await anyio.lowlevel.checkpoint()
            for _, work in callers:
                work.set()
    assert (bulkhead.in_use, bulkhead.waiting, inside) == (0, 0, [])
    permits = [await bulkhead.acquire(Deadline.after(0)) for _ in range(bulkhead.size)]
    assert bulkhead.in_use == len(permits)


async def test_a_place_handed_to_a_waiter_that_is_cancelled_in_the_same_turn_is_not_lost() -> None:
    """The moment between being handed a place and running again is the one where places get lost."""
    bulkhead = Bulkhead("sessions", 1, LONG)
    held = await bulkhead.acquire(Deadline.after(LONG))
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            (await bulkhead.acquire(Deadline.after(LONG))).release()

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            held.release()
            scope.cancel()
    assert (bulkhead.in_use, bulkhead.waiting) == (0, 0)


# -- rates ------------------------------------------------------------------------------------------


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


# -- quotas and stages -----------------------------------------------------------------------------


async def test_a_tenant_has_only_so_many_running_calls() -> None:
    """Another tenant isn't touched; settling and releasing, in any order and number, frees one place."""
    quota = LocalQuota(2)
    first = await quota.reserve(ReservationKey("r1", 1, "m"), "acme", "m", 100)
    second = await quota.reserve(ReservationKey("r2", 1, "m"), "acme", "m", 100)
    with pytest.raises(QuotaExceeded) as caught:
        await quota.reserve(ReservationKey("r3", 1, "m"), "acme", "m", 100)
    assert caught.value.retry_after_ms
    await quota.reserve(ReservationKey("r4", 1, "m"), "globex", "m", 100)
    first.settle(10)
    first.release()
    first.settle(None)
    assert quota.in_use == {"acme": 1, "globex": 1}
    second.release()
    second.release()
    assert quota.in_use["acme"] == 0


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
