"""The arithmetic of capacity: shares that don't overlap, Little's law, headroom, tokens of a minute."""

import itertools
import math
import random

import pytest

from gateway.admission.capacity import (
    LEAST_SHORTAGE,
    Load,
    Part,
    Shares,
    bottleneck,
    calls_a_minute,
    most_at_once,
    places,
    tokens_a_minute,
)
from gateway.admission.quota_window import SlidingWindow


def within(mean: float, number: int) -> float:
    """The probability that a Poisson number of this mean is at most ``number``, term by term."""
    terms = (math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(number + 1))
    return math.fsum(terms)


def test_a_question_is_in_one_share_only() -> None:
    """Of 1000: 100 lost, 450 of the others told kept answers, of those left 90 shared, then 36 refused."""
    shares = Shares(lost=0.1, hits=0.5, shared=0.2, refused=0.1)
    lost, hits, shared, refused = 100, 450, 90, 36
    assert 1000 * shares.made == pytest.approx(1000 - lost - hits - shared)
    assert 1000 * shares.started == pytest.approx(1000 - lost - hits - shared - refused)


def test_with_hits_and_refusals_alone_it_is_the_plain_product() -> None:
    """Arrivals x (1 - hits) x (1 - refusals)."""
    load = Load(arrivals=20, shares=Shares(hits=0.8, refused=0.25))
    assert load.starts == pytest.approx(20 * 0.2 * 0.75)


def test_places_in_use_are_arrivals_times_stay() -> None:
    """Little's law, counted out: 20 visits a second of a quarter of a second each are five at once."""
    part = places("retrieval", visits=2.0, seconds=0.25, size=8, pools=2)
    assert part.used(10) == pytest.approx(5)
    assert part.saturates_at == pytest.approx(32)
    assert part.used(32) == pytest.approx(8 * 2)


@pytest.mark.parametrize("mean", [0.02, 0.5, 1, 4, 17.3, 120, 399.9, 400.1, 900, 5000])
def test_what_is_needed_is_enough_and_one_less_is_not(mean: float) -> None:
    """By the exact sum; beyond 400 the approximation may be a place off, to the safe side or the other."""
    for shortage in (0.1, 0.01, 0.001):
        number = most_at_once(mean, shortage)
        slack = 1 if mean > 400 else 0
        assert within(mean, number + slack) >= 1 - shortage
        assert number - slack == 0 or within(mean, number - 1 - slack) < 1 - shortage


@pytest.mark.parametrize("mean", [0.02, 1.0, 399.9, 1e9])
def test_the_least_shortage_ends_and_what_is_less_is_refused(mean: float) -> None:
    """1 - 1e-17 is 1, which no sum of probabilities comes to."""
    assert most_at_once(mean, LEAST_SHORTAGE) >= mean
    for shortage in (1e-17, 0.0, -1.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="at least 1e-09"):
            most_at_once(mean, shortage)


def test_nobody_needs_nothing() -> None:
    """No arrivals, no place."""
    assert most_at_once(0, 0.01) == 0


def test_what_is_hardly_ever_used_needs_room_for_one() -> None:
    """Not for none; what nobody uses needs nothing."""
    part = places("embedding", visits=1, seconds=0.001, size=8, pools=2)
    assert part.needed(0.01, 0.01) == 1
    assert part.needed(0, 0.01) == 0


def test_a_part_serves_as_long_as_what_it_needs_is_there() -> None:
    """A little more and it isn't; used up is later."""
    part = places("generation", visits=1, seconds=2, size=8, pools=3)
    serves, full = part.serves(0.01), part.saturates_at
    assert serves is not None
    assert full is not None
    assert part.needed(serves, 0.01) == 8
    assert part.needed(serves * 1.01, 0.01) == 9
    assert serves < full


def test_a_few_large_pools_serve_more_than_many_small_ones() -> None:
    """The same places in all: chance evens out in a large one."""
    one, four = (places("generation", 1, 1, 32 // pools, pools).serves(0.01) for pools in (1, 4))
    assert one is not None
    assert four is not None
    assert one > 1.3 * four


def test_what_has_no_limit_is_never_used_up() -> None:
    """Nor is what nobody uses."""
    endless, unused = Part("a", "places", 1.0, None), Part("b", "places", 0.0, 5)
    assert (endless.saturates_at, endless.serves(0.01)) == (None, None)
    assert (unused.saturates_at, unused.serves(0.01)) == (None, None)
    assert bottleneck([endless, unused], 0.01) is None


def test_the_bottleneck_is_what_serves_least() -> None:
    """Whatever its unit; one place is often taken long before it always is."""
    load = Load(arrivals=1, generation_s=2, input_tokens=900, output_tokens=100)
    parts = [
        places("generation", 1, 2, 100, 1),
        tokens_a_minute("tokens", load, 600_000, reserved=1000),
        calls_a_minute("calls", load, 6_000),
    ]
    assert [part.saturates_at for part in parts] == pytest.approx([50, 10, 100])
    first = bottleneck(parts, 0.01)
    assert first is not None
    assert first.name == "tokens"
    lone = places("rerank", 1, 0.01, 1, 1)
    assert lone.saturates_at == pytest.approx(100)
    assert bottleneck([*parts, lone], 0.01) is first
    assert bottleneck([parts[0], lone], 0.01) is lone


def test_tokens_of_a_minute_are_what_the_quota_counts() -> None:
    """Its own window, run for half an hour: each call books its most at first, what it used at its end."""
    rate, stay_s, tokens, reserved = 4.0, 3.0, 700, 8192
    window, chance = SlidingWindow(), random.Random(5)
    begun = list(itertools.accumulate(chance.expovariate(rate) for _ in range(7200)))
    looks = [(float(second), "look", 0.0) for second in range(70, int(begun[-1]))]
    steps = [(at, "begin", at) for at in begun] + [(at + stay_s, "end", at) for at in begun]
    slots, seen = {}, []
    for now, what, call in sorted(steps + looks):
        if what == "begin":
            slots[call] = window.add(reserved, now)
        elif what == "end":
            window.correct(slots[call], tokens - reserved, now)
        else:
            seen.append(window.used(now))
    load = Load(arrivals=rate, generation_s=stay_s, output_tokens=tokens)
    part = tokens_a_minute("tokens", load, 10**6, reserved=reserved)
    assert part.used(rate) == pytest.approx(sum(seen) / len(seen), rel=0.03)
    short = sum(one > part.needed(rate, 0.01) for one in seen) / len(seen)
    assert short < 0.03


def test_an_answer_holds_its_session_as_long_as_its_stages_take() -> None:
    """Kept ones not at all, refusals for the search alone; what was measured comes first."""
    load = Load(
        arrivals=1,
        shares=Shares(hits=0.5, refused=0.2),
        embedding_s=0.1,
        retrieval_s=0.2,
        rerank_s=0.1,
        generation_s=2.0,
    )
    assert load.held_s == pytest.approx(0.5 * (0.4 + 0.8 * 2.0))
    assert Load(arrivals=1, generation_s=2, answer_s=0.7).held_s == 0.7


def test_more_questions_need_more_of_everything() -> None:
    """Never less, whatever the load: a search by halves relies on it."""
    chance = random.Random(11)
    for _ in range(50):
        part = Part("x", "places", chance.uniform(0.001, 5), 10, pools=chance.randint(1, 9))
        needs = [part.needed(arrivals, 0.01) for arrivals in range(0, 400, 7)]
        assert all(first <= second for first, second in itertools.pairwise(needs))
