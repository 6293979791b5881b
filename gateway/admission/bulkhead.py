"""A bulkhead: a named number of places, and a queue no longer than its wait budget."""

import asyncio
import math
import time
from collections.abc import Callable

import anyio

from gateway.admission.holding import HoldTime
from gateway.context import Deadline
from gateway.errors import InvariantViolated, Overloaded, SpentBudget

#: of those that wait, for each place: a bound for the time in which nobody knows how long places are held
_WAITING_A_PLACE = 16
#: what a rejected caller is told then
_UNKNOWN_WAIT_MS = 1000
#: each announced caller that came, or didn't, moves the share of those that do by this
_SHARE_WEIGHT = 1 / 16


class Permit:
    """One place in a bulkhead. Released once; further calls do nothing."""

    def __init__(self, bulkhead: "Bulkhead", taken_at: float) -> None:
        self._bulkhead: Bulkhead | None = bulkhead
        self.taken_at = taken_at

    def release(self) -> None:
        bulkhead, self._bulkhead = self._bulkhead, None
        if bulkhead is not None:
            bulkhead.take_back(self)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Ticket:
    """A caller who has said that he will want a place. Used by ``acquire``, or released once, unused."""

    def __init__(self, bulkhead: "Bulkhead") -> None:
        self._bulkhead: Bulkhead | None = bulkhead

    async def acquire(self, deadline: Deadline) -> Permit:
        """As ``Bulkhead.acquire``."""
        bulkhead, self._bulkhead = self._bulkhead, None
        if bulkhead is None:
            raise InvariantViolated("a ticket was used twice")
        bulkhead.arrived(came=True)
        return await bulkhead.acquire(deadline)

    def release(self) -> None:
        bulkhead, self._bulkhead = self._bulkhead, None
        if bulkhead is not None:
            bulkhead.arrived(came=False)


class Bulkhead:
    """``size`` places, given in the order of arrival; a caller waits ``wait_ms`` at the longest.

    Whoever would probably wait longer than that, or than his deadline, is turned away before he waits at all.
    ``clock`` gives monotonic seconds.
    """

    def __init__(
        self, name: str, size: int, wait_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self.size = size
        self.wait_ms = wait_ms
        self._clock = clock
        self._taken = 0
        self._queue: dict[asyncio.Future[Permit], None] = {}
        self._holds = HoldTime()
        self._announced = 0
        self._share_that_comes = 1.0

    @property
    def name(self) -> str:
        return self._name

    @property
    def in_use(self) -> int:
        return self._taken

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def announced(self) -> int:
        return self._announced

    def announce(self, deadline: Deadline) -> Ticket:
        """For a caller who has something to do before he takes his place: turns him away now rather than
        then. Those who are ahead of him on the same way count as far as such callers usually do come.
        Raises Overloaded.
        """
        self._check(deadline, math.floor(self._announced * self._share_that_comes))
        self._announced += 1
        return Ticket(self)

    def arrived(self, *, came: bool) -> None:
        """What a ticket does when it ends."""
        self._announced -= 1
        self._share_that_comes += _SHARE_WEIGHT * (came - self._share_that_comes)

    def _check(self, deadline: Deadline, coming: int = 0) -> None:
        """Raises Overloaded when a caller behind those that wait and are coming would probably get no place
        in time.
        """
        ahead = self._taken + self.waiting + coming - self.size
        if ahead < 0:
            return
        patience_s = deadline.remaining(self.wait_ms)
        if self._expected_s(ahead) >= patience_s or ahead >= self.size * _WAITING_A_PLACE:
            raise self._overloaded(ahead)

    async def acquire(self, deadline: Deadline) -> Permit:
        """A permit, within the wait budget and the deadline. Raises Overloaded.

        Safe under cancellation: a place that was handed to a caller who is gone is handed on.
        """
        if self._taken < self.size:
            return self._give()
        self._check(deadline)
        place: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        self._queue[place] = None
        try:
            with anyio.move_on_after(deadline.remaining(self.wait_ms)):
                return await place
        except BaseException:
            self._leave(place)
            raise
        self._leave(place)
        raise self._overloaded(self.waiting)

    def take_back(self, permit: Permit) -> None:
        """What a permit does when it is released."""
        self._taken -= 1
        self._holds.ended(permit.taken_at, self._clock())
        while self._queue and self._taken < self.size:
            place = next(iter(self._queue))
            del self._queue[place]
            if not place.done():  # a caller who is being cancelled hasn't left the queue yet
                place.set_result(self._give())

    def _give(self) -> Permit:
        self._taken += 1
        permit = Permit(self, self._clock())
        self._holds.began(permit.taken_at)
        return permit

    def _leave(self, place: asyncio.Future[Permit]) -> None:
        self._queue.pop(place, None)
        if place.done() and not place.cancelled():
            place.result().release()

    def _expected_s(self, ahead: int) -> float:
        return self._holds.wait_s(self._clock(), self.size, ahead)

    def _overloaded(self, ahead: int) -> Overloaded:
        expected_ms = math.ceil(self._expected_s(ahead) * 1000) or _UNKNOWN_WAIT_MS
        budget = SpentBudget(
            self._name, self.size, window_s=0, remaining=0, reset_s=math.ceil(expected_ms / 1000)
        )
        return Overloaded(self._name, retry_after_ms=expected_ms, budget=budget)
