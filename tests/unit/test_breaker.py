"""The breaker: when an endpoint is left alone, who may try it again, and what changes nothing."""

import random

import pytest

from gateway.admission.breaker import Breaker, BreakerState, Trial

FAILURES = 3
OPEN_S = 5.0


class Clock:
    """Stands still until a test moves it; seconds."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(FAILURES, OPEN_S, clock)


def state_of(breaker: Breaker) -> BreakerState:
    """Read anew: a type checker would take what it was for what it is."""
    return breaker.state


def admitted(breaker: Breaker) -> Trial:
    trial = breaker.admit()
    assert trial is not None
    return trial


def broken(breaker: Breaker) -> None:
    """Opened by failures."""
    for _ in range(FAILURES):
        admitted(breaker).failed()
    assert state_of(breaker) is BreakerState.OPEN


def test_it_opens_after_so_many_failures_in_a_row(breaker: Breaker) -> None:
    """A call that went well forgets those before it; one of which nobody knows doesn't."""
    for _ in range(FAILURES - 1):
        admitted(breaker).failed()
    admitted(breaker).succeeded()
    for _ in range(FAILURES - 1):
        admitted(breaker).failed()
    admitted(breaker).release()
    assert state_of(breaker) is BreakerState.CLOSED
    admitted(breaker).failed()
    assert (state_of(breaker), breaker.admits, breaker.admit()) == (BreakerState.OPEN, False, None)


def test_an_answer_that_breaks_off_each_time_opens_it_too(breaker: Breaker) -> None:
    """Text that came doesn't make up for the end that didn't."""
    for _ in range(FAILURES):
        trial = admitted(breaker)
        trial.answered()
        trial.failed()
    assert state_of(breaker) is BreakerState.OPEN


def test_it_says_when_to_come_again(breaker: Breaker, clock: Clock) -> None:
    """What is left of the rest; a second while a probe is out; nothing when a call may go."""
    assert breaker.retry_after_ms == 0
    broken(breaker)
    assert breaker.retry_after_ms == 5000
    clock.now += 3.5
    assert breaker.retry_after_ms == 1500
    clock.now += 1.5
    assert breaker.retry_after_ms == 0
    admitted(breaker)
    assert breaker.retry_after_ms == 1000


def test_after_the_rest_one_probe_at_a_time_decides(breaker: Breaker, clock: Clock) -> None:
    """Failing, it opens the breaker for another rest; answered, it lets everybody in before it is over."""
    broken(breaker)
    clock.now += OPEN_S
    assert (state_of(breaker), breaker.admits) == (BreakerState.HALF_OPEN, True)
    probe = admitted(breaker)
    assert breaker.admit() is None
    probe.failed()
    assert state_of(breaker) is BreakerState.OPEN
    clock.now += OPEN_S
    probe = admitted(breaker)
    probe.answered()
    assert state_of(breaker) is BreakerState.CLOSED
    assert breaker.admit() is not None
    probe.failed()
    assert state_of(breaker) is BreakerState.CLOSED


def test_a_probe_that_is_cancelled_leaves_its_place_to_the_next(breaker: Breaker, clock: Clock) -> None:
    """Nothing is known of the endpoint, so nothing changes."""
    broken(breaker)
    clock.now += OPEN_S
    for _ in range(3):
        admitted(breaker).release()
        assert state_of(breaker) is BreakerState.HALF_OPEN
    admitted(breaker).succeeded()
    assert state_of(breaker) is BreakerState.CLOSED


def test_old_calls_have_no_say(breaker: Breaker, clock: Clock) -> None:
    """What began before it opened tells nothing about the endpoint as it is now."""
    old = [admitted(breaker) for _ in range(4)]
    broken(breaker)
    old[0].succeeded()
    assert state_of(breaker) is BreakerState.OPEN
    clock.now += OPEN_S
    old[1].failed()
    assert state_of(breaker) is BreakerState.HALF_OPEN
    probe = admitted(breaker)
    old[2].release()
    assert breaker.admit() is None
    probe.succeeded()
    for _ in range(FAILURES - 1):
        admitted(breaker).failed()
    old[3].succeeded()
    admitted(breaker).failed()
    assert state_of(breaker) is BreakerState.OPEN


def test_only_the_first_word_of_a_call_counts(breaker: Breaker) -> None:
    """Releasing at the end of whatever held it is harmless."""
    for _ in range(FAILURES - 1):
        trial = admitted(breaker)
        trial.failed()
        trial.failed()
        trial.release()
        trial.succeeded()
    assert state_of(breaker) is BreakerState.CLOSED
    admitted(breaker).failed()
    assert state_of(breaker) is BreakerState.OPEN


@pytest.mark.parametrize("seed", range(20))
def test_it_is_never_wedged(seed: int) -> None:
    """Whatever happened, once every call is over and the rest is past a call may go."""
    rng, clock = random.Random(seed), Clock()
    breaker, running = Breaker(FAILURES, OPEN_S, clock), list[Trial]()
    for _ in range(300):
        clock.now += rng.choice([0, 0, 0.5, OPEN_S])
        if (trial := breaker.admit()) is not None:
            running.append(trial)
        if running and rng.random() < 0.8:
            word = rng.choice([Trial.answered, Trial.succeeded, Trial.failed, Trial.failed, Trial.release])
            word(rng.choice(running))
    for trial in running:
        trial.release()
    clock.now += OPEN_S
    admitted(breaker).succeeded()
    assert state_of(breaker) is BreakerState.CLOSED
