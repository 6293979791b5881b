"""The board of flights: who asks what is just being answered joins, anybody else begins one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from gateway.answer.cache import AnswerKey
from gateway.answer.reuse.flight import Flight, Seat
from gateway.context import Deadline
from gateway.observe.logging import get_logger
from gateway.observe.trace import Trace
from gateway.stream.session import Session

#: the last member waits that long for a making to give back what it holds
_LAND_S = 5.0

_log = get_logger("answers")

#: steps 8-16, told in a flight; returns when nothing is left to do
Make = Callable[[Flight], Awaitable[None]]


class Flights:
    """Of this process. Everything runs on one event loop, so a plain look at the board is atomic."""

    def __init__(self) -> None:
        self._flying: dict[AnswerKey, Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def aboard(
        self, key: AnswerKey | None, session: Session, trace: Trace, deadline: Deadline, make: Make
    ) -> AsyncIterator[Seat]:
        """A seat for the length of the block; with key None in a flight that nobody else joins.

        Leaving it as the last one cancels what still runs, and waits until that has given everything back.
        """
        flight = None if key is None else self._flying.get(key)
        if flight is None or not flight.takes(deadline):
            flight = self._begin(key, trace, deadline, make)
        seat = flight.join(session, deadline)
        try:
            yield seat
        finally:
            if flight.leave(seat):
                with anyio.move_on_after(_LAND_S, shield=True):
                    await flight.over.wait()

    def _begin(self, key: AnswerKey | None, trace: Trace, deadline: Deadline, make: Make) -> Flight:
        """Its task doesn't run before somebody waits."""
        flight = Flight(Trace(trace.request_id, trace.trace_id, trace.hooks), deadline)
        if key is not None:
            self._flying[key] = flight
        task = asyncio.get_running_loop().create_task(self._fly(key, flight, make))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return flight

    async def _fly(self, key: AnswerKey | None, flight: Flight, make: Make) -> None:
        try:
            with flight.cancel_scope:
                await make(flight)
        except Exception as failure:  # noqa: BLE001 - each member raises it, where his own last frame tells it
            if not flight.fail(failure):  # after the landing nobody is there to raise it
                _log.exception("answer.defect", request_id=flight.trace.request_id)
        finally:
            if key is not None and self._flying.get(key) is flight:
                del self._flying[key]
            flight.ended()
