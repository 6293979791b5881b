"""Windows, ledgers and the quota of a process that is alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.quota import Budget, QuotaLimits, ReservationKey
from gateway.admission.quota_ledger import Ledger
from gateway.admission.quota_local import LocalQuota
from gateway.admission.quota_window import SlidingWindow
from gateway.errors import QuotaExceeded


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def reserve(quota: LocalQuota, name: str, tenant: str = "acme", tokens: int = 10) -> None:
    (await quota.reserve(ReservationKey(name, 1, "m"), tenant, "m", tokens)).settle(None)


# -- windows ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9)), max_size=60), st.integers(9, 30))
def test_a_window_never_lets_more_than_the_limit_through(
    arrivals: list[tuple[float, int]], limit: int
) -> None:
    """In any 60 seconds, whenever and with whatever amounts callers come."""
    window, now = SlidingWindow(), 0.0
    admitted: list[tuple[float, int]] = []
    for pause, amount in arrivals:
        now += pause
        if window.used(now) + amount <= limit:
            window.add(amount, now)
            admitted.append((now, amount))
    for first, _ in admitted:
        assert sum(amount for at, amount in admitted if first <= at < first + 60) <= limit


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9)), max_size=60), st.integers(9, 30))
def test_a_window_says_when_there_is_room(arrivals: list[tuple[float, int]], limit: int) -> None:
    """After that time there is, and shortly before there isn't."""
    window, now = SlidingWindow(), 0.0
    for pause, amount in arrivals:
        now += pause
        if window.used(now) + amount <= limit:
            window.add(amount, now)
    wait_s = window.wait_s(9, limit, now)
    before = SlidingWindow()
    for slot, amount in vars(window)["_used"].items():
        before.add(amount, slot)
    if wait_s:
        assert before.used(now + wait_s - 0.001) + 9 > limit
    assert window.used(now + wait_s + 0.001) + 9 <= limit


def test_what_is_given_back_leaves_the_second_it_was_booked_in() -> None:
    """What was used above the reservation counts from now on."""
    window = SlidingWindow()
    slot = window.add(10, 100.0)
    window.correct(slot, -4, 130.0)
    assert window.used(130.0) == 6
    window.correct(slot, 3, 130.0)
    assert window.used(161.5) == 3
    window.correct(slot, -4, 161.5)
    assert window.used(161.5) == 3


# -- ledgers ----------------------------------------------------------------------------------------


def test_idle_accounts_are_forgotten() -> None:
    """A tenant that asked once isn't remembered for ever, and one that is running is."""
    clock = Clock()
    ledger = Ledger(60.0, clock)

    def budgets(name: str) -> tuple[Budget, ...]:
        return (Budget("tenant", name, QuotaLimits(1, 10, 10)),)

    running = ledger.begin(budgets("running"), 1)
    for number in range(100):
        ledger.end(ledger.begin(budgets(f"t{number}"), 1), None)
    assert len(ledger) == 101
    ledger.end(running, None)
    clock.now += 62
    ledger.end(ledger.begin(budgets("new"), 1), 1)
    assert len(ledger) == 1


def test_a_part_is_rounded_down() -> None:
    """So that all parts together are no more than the whole; no limit stays none."""
    assert QuotaLimits(10, None, 7).part(3) == QuotaLimits(3, None, 2)
    assert QuotaLimits(1, 1, 1).part(2) == QuotaLimits(0, 0, 0)


# -- the quota --------------------------------------------------------------------------------------


async def test_running_calls_are_counted_by_tenant() -> None:
    """Each call once, however often it is settled."""
    quota = LocalQuota(QuotaLimits(2))
    first = await quota.reserve(ReservationKey("r1", 1, "m"), "acme", "m", 100)
    await quota.reserve(ReservationKey("r2", 1, "n"), "acme", "n", 100)
    await quota.reserve(ReservationKey("r3", 1, "m"), "globex", "m", 100)
    first.settle(10)
    first.release()
    assert quota.in_use == {"acme": 1, "globex": 1}


async def test_a_minute_later_there_is_room_again() -> None:
    """Exactly when the refusal said so."""
    clock = Clock()
    quota = LocalQuota(QuotaLimits(requests_per_minute=2), clock=clock)
    await reserve(quota, "r1")
    clock.now += 20
    await reserve(quota, "r2")
    with pytest.raises(QuotaExceeded) as caught:
        await reserve(quota, "r3")
    wait_s = (caught.value.retry_after_ms or 0) / 1000
    assert 40 <= wait_s <= 41
    clock.now += wait_s - 0.01
    with pytest.raises(QuotaExceeded):
        await reserve(quota, "r3")
    clock.now += 0.01
    await reserve(quota, "r3")


async def test_a_key_that_reserves_again_after_its_call_is_a_new_call() -> None:
    """What the old lease says doesn't touch it."""
    quota = LocalQuota(QuotaLimits(1))
    key = ReservationKey("r1", 1, "m")
    first = await quota.reserve(key, "acme", "m", 1)
    first.release()
    await quota.reserve(key, "acme", "m", 1)
    first.release()
    with pytest.raises(QuotaExceeded):
        await quota.reserve(ReservationKey("r2", 1, "m"), "acme", "m", 1)
