"""A flight: one answer in the making, for everybody who asked the same with the same rights meanwhile.

It belongs to its members. Each of them reads at his own pace, inside his own session, deadline and
permissions; when the last one has left, it is cancelled, and its call is closed on the wire.
"""

import asyncio
import time
from types import TracebackType

import anyio

from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.answer.reuse.transcript import Transcript
from gateway.context import Deadline
from gateway.errors import (
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    InvariantViolated,
    NotFound,
    PermissionsChanged,
    Unauthenticated,
)
from gateway.observe.trace import Trace
from gateway.stream.session import CloseReason, Releasable, Session

#: how far the text may run ahead of the member who reads fastest; his session's own buffer comes on top
_AHEAD_CHARS = 1024
#: a timer may be that early
_TICK_S = 0.05
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


class _Bell:
    """Wakes everybody who waits for it; whoever comes later waits for the next ring.

    It rings for each piece of text, and costs a fraction of an event when one or nobody waits.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def heard(self) -> None:
        future = self._loop.create_future()
        self._waiting.append(future)
        await future


class Flight:
    """What the making sees of it is a Sink; what a member sees is his Seat."""

    def __init__(self, trace: Trace, deadline: Deadline) -> None:
        self.trace = trace
        self._leaders = deadline
        self.deadline = SharedDeadline(deadline.at)
        self.cancel_scope = anyio.CancelScope()
        self.over = anyio.Event()
        #: it tells what another process has made
        self.repeats = False
        self._cut_short: CloseReason | None = None
        self._seats: dict[Seat, None] = {}
        self._led = False
        self._text = Transcript()
        self._read = 0
        self._opening: Opening | None = None
        self._ending: Ending | None = None
        self._failure: Exception | None = None
        self._failed_at: TracebackType | None = None
        self._wanted = anyio.Event()
        self._news = _Bell()
        self._room = _Bell()
        self._held: list[Releasable] = []

    # -- what the making does --------------------------------------------------------------------

    @property
    def close_reason(self) -> CloseReason | None:
        """None as long as a member's session runs: those whose sessions have ended are about to leave."""
        reason = self._cut_short
        if reason is None:
            for seat in self._seats:
                reason = seat.session.close_reason
                if reason is None:
                    break
        return reason

    def hold(self, item: Releasable) -> None:
        self._held.append(item)

    def open(self, opening: Opening) -> None:
        """Each member now looks whether he may see it."""
        self._opening = opening
        self._news.ring()

    async def wanted(self) -> None:
        """Until a member has looked, and was told what the answer rests on: no model is asked before."""
        await self._wanted.wait()

    async def write(self, text: str) -> None:
        self._text.add(text)
        self._news.ring()
        while len(self._text) - self._read > _AHEAD_CHARS:
            await self._room.heard()

    def land(self, ending: Ending) -> None:
        self._ending = ending
        self._news.ring()

    def fail(self, failure: Exception) -> bool:
        """Every member gets it, behind the text that came before it; a landed flight can't fail any more."""
        if self._ending is not None:
            return False
        self._failure = failure
        # a defect is logged by whoever raises it, and is looked for where it was; its kin is told by code
        self._failed_at = None if isinstance(failure, GatewayError) else failure.__traceback__
        self._news.ring()
        return True

    def cancel(self, reason: CloseReason) -> bool:
        if self._cut_short is not None:
            return False
        self._cut_short = reason
        for seat in tuple(self._seats):
            seat.session.cancel(reason)
        self.cancel_scope.cancel(reason.value)
        return True

    async def repeat(self, kept: KeptAnswer) -> None:
        """What another process has made meanwhile is told as if it had been made here."""
        self.repeats = True
        self.open(kept.opening)
        await self.wanted()
        await self.write(kept.text)
        self.land(kept.ending)

    def landed(self) -> KeptAnswer:
        """The whole answer. Raises InvariantViolated as long as it isn't."""
        if self._opening is None or self._ending is None:
            raise InvariantViolated("a flight that hasn't landed has no answer")
        return KeptAnswer(self._opening, self._text.whole(), self._ending, time.time())

    # -- what the board does ---------------------------------------------------------------------

    def takes(self, deadline: Deadline) -> bool:
        """Nobody when it is cut short, also by its deadline, or has brought up what isn't shared. Nor whoever
        has more than twice its time: what was begun before he came knows no other, and may end with it.
        """
        if self.cancel_scope.cancel_called or deadline.remaining() > 2 * self.deadline.remaining():
            return False
        return self._opening is None or self._opening.shared

    def join(self, session: Session, deadline: Deadline) -> "Seat":
        """The first one leads. His session ends with the flight when that is cut short for all."""
        self.deadline.extend(deadline.at)
        self.cancel_scope.deadline = anyio.current_time() + self.deadline.remaining()
        seat = Seat(self, session, leads=not self._led)
        self._led = True
        self._seats[seat] = None
        return seat

    def leave(self, seat: "Seat") -> bool:
        """True when nobody is left; what still runs is cancelled then."""
        del self._seats[seat]
        self._read = max((other.read for other in self._seats), default=0)
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
        self._news.ring()

    # -- what seats do ---------------------------------------------------------------------------

    async def opening(self, *, leads: bool) -> Opening:
        while self._opening is None and self._failure is None:
            await self._news.heard()
        if self._opening is None:
            if self._is_leaders_own(self._failure) and not leads:
                raise LeftAlone
            raise self._raised()
        if not (self._opening.shared or leads):
            raise NotShared
        return self._opening

    def want(self) -> None:
        self._wanted.set()

    async def text_from(self, place: int) -> str:
        """Whoever asks for it has dealt with all that stands before."""
        if place > self._read:
            self._read = place
            self._room.ring()
        while len(self._text) == place and self._ending is None and self._failure is None:
            await self._news.heard()
        return self._text.after(place)

    async def ending(self) -> Ending:
        while self._ending is None and self._failure is None:
            await self._news.heard()
        if self._ending is None:
            raise self._raised()
        return self._ending

    def _is_leaders_own(self, failure: Exception | None) -> bool:
        """His rights, or the end of his time: what was begun before somebody joined knows no other."""
        out_of_time = isinstance(failure, DeadlineExceeded) and self._leaders.remaining() < _TICK_S
        return out_of_time or isinstance(failure, _HIS_OWN)

    def _raised(self) -> Exception:
        """The failure, for one more member to raise: without the way it took through the others."""
        failure = self._failure or InvariantViolated("a flight failed without a failure")
        return failure.with_traceback(self._failed_at)


class Seat:
    """One member's place in a flight. ``leads``: the making was begun with his question and his rights."""

    def __init__(self, flight: Flight, session: Session, *, leads: bool) -> None:
        self._flight = flight
        self.session = session
        self.leads = leads
        #: characters that he is done with, and that he was given
        self.read = 0
        self._given = 0

    @property
    def trace(self) -> Trace:
        """Of the making."""
        return self._flight.trace

    @property
    def found_here(self) -> bool:
        """Whether it was searched for with his rights, and what was found is in his session."""
        return self.leads and not self._flight.repeats

    async def opening(self) -> Opening:
        """Raises what the making raised, LeftAlone and NotShared."""
        return await self._flight.opening(leads=self.leads)

    def want(self) -> None:
        """He may see it, and was told of it."""
        self._flight.want()

    async def text(self) -> str:
        """What comes next, '' at the end. Asking again says that he is done with what he was given."""
        self.read = self._given
        text = await self._flight.text_from(self._given)
        self._given += len(text)
        return text

    async def ending(self) -> Ending:
        """Raises what the making raised."""
        return await self._flight.ending()
