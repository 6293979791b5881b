"""A flight: one answer in the making, for everybody who asked the same with the same rights meanwhile.

It belongs to its members. Each of them reads at his own pace, inside his own session, deadline and
permissions; when the last one has left, it is cancelled, and its call is closed on the wire.
"""

import time
from collections.abc import Callable

import anyio

from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.context import Deadline
from gateway.errors import (
    DeadlineExceeded,
    Forbidden,
    InvariantViolated,
    NotFound,
    PermissionsChanged,
    Unauthenticated,
)
from gateway.observe.trace import Trace
from gateway.stream.session import CloseReason, Releasable

#: what ends the leader's part in a flight and says nothing about the others
_HIS_OWN = (Unauthenticated, Forbidden, NotFound, PermissionsChanged)


class LeftAlone(Exception):
    """To a member whose flight ended with its leader's own rights, before there was anything to read:
    somebody else leads another one.
    """


class NotShared(Exception):
    """To a member of a flight that brings up what depends on who asked, or what he may not see: he asks
    alone.
    """


class SharedDeadline(Deadline):
    """As late as that of the latest member."""

    __slots__ = ()

    def extend(self, at: float) -> None:
        object.__setattr__(self, "at", max(self.at, at))


class Flight:
    """What the making sees of it is a Sink; what a member sees is his Seat."""

    def __init__(self, trace: Trace, deadline: Deadline, ahead_chars: int) -> None:
        """``ahead_chars``: how far the text may run ahead of the member who reads fastest."""
        self.trace = trace
        self.deadline = SharedDeadline(deadline.at)
        self.cancel_scope = anyio.CancelScope()
        self.over = anyio.Event()
        self.close_reason: CloseReason | None = None
        self._ahead = ahead_chars
        self._seats: dict[Seat, None] = {}
        self._leader: Seat | None = None
        self._parts: list[str] = []
        self._chars = 0
        self._opening: Opening | None = None
        self._ending: Ending | None = None
        self._failure: Exception | None = None
        self._wanted = anyio.Event()
        self._changed = anyio.Event()
        self._held: list[Releasable] = []

    # -- what the making does --------------------------------------------------------------------

    def hold(self, item: Releasable) -> None:
        self._held.append(item)

    def open(self, opening: Opening) -> None:
        """Each member now looks whether he may see it."""
        self._opening = opening
        self._tell()

    async def wanted(self) -> None:
        """Until a member has looked, and was told what the answer rests on: no model is asked before."""
        await self._wanted.wait()

    async def write(self, text: str) -> None:
        self._parts.append(text)
        self._chars += len(text)
        self._tell()
        while self.close_reason is None and self._chars - self._read() > self._ahead:
            await self._changed.wait()

    def land(self, ending: Ending) -> None:
        self._ending = ending
        self._tell()

    def fail(self, failure: Exception) -> None:
        """Every member gets it, behind the text that came before it."""
        if self._ending is None:
            self._failure = failure
        self._tell()

    def cancel(self, reason: CloseReason) -> bool:
        if self.close_reason is not None:
            return False
        self.close_reason = reason
        for seat in tuple(self._seats):
            seat.end(reason)
        self.cancel_scope.cancel(reason.value)
        self._tell()
        return True

    async def repeat(self, kept: KeptAnswer) -> None:
        """What another process has made meanwhile is told as if it had been made here."""
        self.open(kept.opening)
        await self.wanted()
        await self.write(kept.text)
        self.land(kept.ending)

    def landed(self) -> KeptAnswer:
        """The whole answer. Raises InvariantViolated as long as it isn't."""
        if self._opening is None or self._ending is None:
            raise InvariantViolated("a flight that hasn't landed has no answer")
        return KeptAnswer(self._opening, "".join(self._parts), self._ending, time.time())

    # -- what the board does ---------------------------------------------------------------------

    @property
    def joinable(self) -> bool:
        return self.close_reason is None and (self._opening is None or self._opening.shared)

    def join(self, deadline: Deadline, end: Callable[[CloseReason], object]) -> "Seat":
        """``end`` ends the member's session for a reason that isn't his own."""
        self.deadline.extend(deadline.at)
        self.cancel_scope.deadline = anyio.current_time() + self.deadline.remaining()
        seat = Seat(self, end)
        self._seats[seat] = None
        self._leader = self._leader or seat
        return seat

    def leave(self, seat: "Seat") -> bool:
        """True when nobody is left; what still runs is cancelled then."""
        del self._seats[seat]
        self._tell()
        if self._seats:
            return False
        if self._ending is None and self._failure is None:
            self.cancel(CloseReason.CLIENT_GONE)
        return True

    def ended(self) -> None:
        """The making is over and owns nothing any more."""
        while self._held:
            self._held.pop().release()
        if self._ending is None and self._failure is None:
            self._failure = DeadlineExceeded("total")
        self.over.set()
        self._tell()

    # -- what seats do ---------------------------------------------------------------------------

    async def opening(self, seat: "Seat") -> Opening:
        while self._opening is None and self._failure is None:
            await self._changed.wait()
        if self._opening is None:
            raise self._failure_of(seat)
        if not self._opening.shared and not self.leads(seat):
            raise NotShared
        return self._opening

    def want(self) -> None:
        self._wanted.set()

    async def text_after(self, seat: "Seat") -> str:
        self._tell()  # what he has read makes room
        while len(self._parts) == seat.parts and self._ending is None and self._failure is None:
            await self._changed.wait()
        text = "".join(self._parts[seat.parts :])
        seat.parts, seat.next = len(self._parts), seat.next + len(text)
        return text

    async def ending(self, seat: "Seat") -> Ending:
        while self._ending is None and self._failure is None:
            await self._changed.wait()
        if self._ending is None:
            raise self._failure_of(seat)
        return self._ending

    def leads(self, seat: "Seat") -> bool:
        return self._leader is seat

    def _failure_of(self, seat: "Seat") -> Exception:
        if self._failure is None:
            return InvariantViolated("a flight failed without a failure")
        if isinstance(self._failure, _HIS_OWN) and not self.leads(seat):
            return LeftAlone()
        return self._failure.with_traceback(None)  # each member raises it anew

    def _read(self) -> int:
        return max((seat.read for seat in self._seats), default=0)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Seat:
    """One member's place in a flight."""

    def __init__(self, flight: Flight, end: Callable[[CloseReason], object]) -> None:
        self._flight = flight
        self.end = end
        #: pieces and characters he was given, and those of them that he is done with
        self.parts = 0
        self.next = 0
        self.read = 0

    @property
    def leads(self) -> bool:
        """Whether the making was begun with his question and his rights."""
        return self._flight.leads(self)

    @property
    def trace(self) -> Trace:
        """Of the making."""
        return self._flight.trace

    async def opening(self) -> Opening:
        """Raises what the making raised, LeftAlone and NotShared."""
        return await self._flight.opening(self)

    def want(self) -> None:
        """He may see it, and was told of it."""
        self._flight.want()

    async def text(self) -> str:
        """What was written since the last call; '' at the end. Asking again says that it is dealt with."""
        self.read = self.next
        return await self._flight.text_after(self)

    async def ending(self) -> Ending:
        """Raises what the making raised."""
        return await self._flight.ending(self)
