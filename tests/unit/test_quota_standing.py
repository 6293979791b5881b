"""What a process may still do when the shared quota is away: from when, until when, and which calls end."""

import pytest

from gateway.adapters.redis.calls import NO_LEASE, Call, RunningCalls
from gateway.adapters.redis.places import Place
from gateway.adapters.redis.standing import BeatReply, Standing
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits, ReservationKey
from gateway.admission.quota_ledger import Entry

CALLS = QuotaLimits(concurrency=4)
RATED = QuotaLimits(concurrency=4, tokens_per_minute=100)


def standing_of(terms: QuotaTerms, part: int = 2) -> Standing:
    """Asked at 100, answered at 101."""
    standing = Standing(terms, "p")
    standing.answered(100.0, 101.0, BeatReply("open", 5000, 0, part, 1, "{}"))
    return standing


def terms(tenant: QuotaLimits = CALLS, forget_s: float = 600) -> QuotaTerms:
    return QuotaTerms(tenant=tenant, lease_s=10, total_cap_s=30, forget_s=forget_s)


@pytest.mark.parametrize(("limits", "quiet_s"), [(CALLS, 10 + 30), (RATED, 10 + 61)])
def test_a_process_is_alone_after_leases_and_calls_and_windows_are_over(
    limits: QuotaLimits, quiet_s: float
) -> None:
    """Counted from the answer, with a margin: not before Redis withholds its part."""
    standing = standing_of(terms(limits))
    assert not standing.is_alone(101 + quiet_s)
    assert standing.is_alone(101 + quiet_s + 1)


@pytest.mark.parametrize(("limits", "settled_s"), [(CALLS, 30), (RATED, 61)])
def test_it_is_no_longer_alone_when_it_may_be_forgotten(limits: QuotaLimits, settled_s: float) -> None:
    """Counted from the question: what it began is over, and out of the window, by then."""
    standing = standing_of(terms(limits))
    last = 100 + 600 - 1 - settled_s
    assert standing.is_alone(last - 0.1)
    assert not standing.is_alone(last)
    assert standing.keeps_part(last + settled_s - 0.1)
    assert not standing.keeps_part(last + settled_s)


def test_a_part_that_may_be_forgotten_isnt_claimed_again() -> None:
    """Others may have it when Redis is back."""
    standing = standing_of(terms())
    standing.asks(100 + 600 - 1.1)
    assert standing.part == 2
    standing.asks(100 + 600 - 1)
    assert standing.part == 0


@pytest.mark.parametrize("word", ["replaced", "stale"])
def test_what_is_no_answer_gives_nothing(word: str) -> None:
    """A process whose name another one has taken may do nothing alone."""
    standing = Standing(terms(), "p")
    standing.answered(100.0, 101.0, BeatReply(word, 5000, 0, 2, 1, ""))
    assert not any(standing.is_alone(at) for at in (102, 150, 500))
    assert not standing.is_in_touch(101.0)
    assert standing.is_replaced == (word == "replaced")


def test_without_a_part_nobody_is_alone() -> None:
    """Newcomers, while the whole is given away."""
    standing = standing_of(terms(), part=0)
    assert not any(standing.is_alone(at) for at in (142, 150, 500))


def test_a_lease_is_relied_on_for_less_than_it_lasts() -> None:
    """Counted from the question."""
    assert standing_of(terms()).leased_until(100.0) == 109


def test_the_time_to_be_forgotten_is_never_too_short_to_be_alone() -> None:
    """Whatever is asked for."""
    short = terms(forget_s=1)
    assert short.forgotten_s == 2 * (40 + 30)
    assert standing_of(short).is_alone(101 + 41)


# -- calls ------------------------------------------------------------------------------------------


def running(lost: list[str], names: str, leased_until: float, tenant: QuotaLimits = CALLS) -> RunningCalls:
    """One call for each letter, in the order they began."""
    calls = RunningCalls()
    told = terms(tenant)
    for name in names:
        place = Place.of(ReservationKey(name, 1, "m"), *told.budgets("acme", "m"))
        calls.add(Call(place, Entry((), 0), lambda name=name: lost.append(name), leased_until, True))  # type: ignore[misc]  # a default binds the name
    return calls


def test_the_newest_calls_without_a_lease_end_beyond_the_part() -> None:
    """Each once; the oldest go on."""
    lost: list[str] = []
    calls = running(lost, "abcd", leased_until=109)
    calls.end_lost(108.9, 2)
    assert lost == []
    for _ in range(2):
        calls.end_lost(109, 2)
    assert lost == ["c", "d"]


def test_all_end_without_a_part() -> None:
    """But those with a lease don't, nor those that have no limit to keep."""
    lost: list[str] = []
    running(lost, "ab", leased_until=109).end_lost(109, 0)
    running(lost, "cd", leased_until=110).end_lost(109, 0)
    running(lost, "ef", leased_until=NO_LEASE, tenant=QuotaLimits()).end_lost(109, 0)
    assert lost == ["a", "b"]
    assert running(lost, "ab", leased_until=109).next_loss(100) == 109
    assert running(lost, "ab", leased_until=109).next_loss(109) is None
