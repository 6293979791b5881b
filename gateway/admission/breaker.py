"""A circuit breaker, sans IO: leaves an endpoint alone that fails each time, and tries it again later."""

import time
from collections.abc import Callable
from enum import StrEnum

#: while a probe is out nobody knows how long it will take
_PROBE_MS = 1000


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Trial:
    """One call that a breaker let through, and the word it waits for: how the call went.

    ``release`` says that nobody knows, and changes nothing after another word.
    """

    def __init__(self, breaker: "Breaker", period: int) -> None:
        self._breaker = breaker
        #: the breaker's, in which the call began; what is heard of it in a later one is old news
        self.period = period
        self._over = False

    def answered(self) -> None:
        """The endpoint is alive: a probe has found out, though its own call goes on."""
        if not self._over:
            self._breaker.answered(self)

    def succeeded(self) -> None:
        if self._end():
            self._breaker.succeeded(self)

    def failed(self) -> None:
        if self._end():
            self._breaker.failed(self)

    def release(self) -> None:
        if self._end():
            self._breaker.unknown(self)

    def _end(self) -> bool:
        over, self._over = self._over, True
        return not over


class Breaker:
    """Opens after ``failures`` in a row, for ``open_s``; then one probe at a time decides.

    closed     everybody may call; a call that goes well forgets the failures before it
    open       nobody may, until ``open_s`` have passed
    half open  one call may: if it is answered the breaker closes, if it fails it opens again, if nobody
               knows how it went the next one may
    """

    def __init__(self, failures: int, open_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = failures
        self._open_s = open_s
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probe: Trial | None = None
        self._period = 0

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        rested = self._clock() - self._opened_at >= self._open_s
        return BreakerState.HALF_OPEN if rested else BreakerState.OPEN

    @property
    def admits(self) -> bool:
        """Whether a call that came now would be let through."""
        state = self.state
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and self._probe is None)

    @property
    def retry_after_ms(self) -> int:
        """When a call may be let through again; 0 when it may now."""
        if self.admits:
            return 0
        if self._opened_at is None or self._probe is not None:
            return _PROBE_MS
        return max(1, round((self._opened_at + self._open_s - self._clock()) * 1000))

    def admit(self) -> Trial | None:
        """One call's way through, which must be ended; None when the endpoint is to be left alone."""
        if not self.admits:
            return None
        trial = Trial(self, self._period)
        if self._opened_at is not None:
            self._probe = trial
        return trial

    # -- what trials say ------------------------------------------------------------------------

    def answered(self, trial: Trial) -> None:
        if trial is self._probe:
            self._close()

    def succeeded(self, trial: Trial) -> None:
        if trial is self._probe:
            self._close()
        elif trial.period == self._period:
            self._failures = 0

    def failed(self, trial: Trial) -> None:
        if trial is self._probe:
            self._open()
        elif trial.period == self._period and self._opened_at is None:
            self._failures += 1
            if self._failures >= self._limit:
                self._open()

    def unknown(self, trial: Trial) -> None:
        if trial is self._probe:
            self._probe = None

    def _open(self) -> None:
        self._opened_at = self._clock()
        self._restart()

    def _close(self) -> None:
        self._opened_at = None
        self._restart()

    def _restart(self) -> None:
        self._period += 1
        self._failures = 0
        self._probe = None
