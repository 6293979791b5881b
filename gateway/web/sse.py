"""Server-sent events: a session's events as a response (WHATWG HTML, section 9.2)."""

import asyncio
from collections.abc import AsyncIterator, Callable

import anyio
import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from gateway.settings import Settings
from gateway.stream.protocol import EVENT_NAMES, Event
from gateway.stream.session import CloseReason, Session
from gateway.web.connection import abort_of

_ABORT_CAP_S = 1.0


_NAMES = {kind: name.encode() for kind, name in EVENT_NAMES.items()}


def encode(sequence: int, event: Event) -> bytes:
    """One event: name, id, one line of JSON. JSON escapes every line end, so framing is safe."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (_NAMES[type(event)], sequence, orjson.dumps(event))


async def _encoded(session: Session) -> AsyncIterator[bytes]:
    async for sequence, event in session.events():
        yield encode(sequence, event)


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")


class _TimelySend:
    """A ``send`` that tells when one message has been waiting for ``limit_s``; one timer for all of them.

    The library would put a scope around each of its events, and none around the first message and the last.
    """

    def __init__(self, send: Send, limit_s: float, on_late: Callable[[], None]) -> None:
        self._send = send
        self._limit_s = limit_s
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._waiting: list[float] = []  # since when; an event and a heartbeat at most
        self._timer: asyncio.TimerHandle | None = None
        self.late = False

    async def __call__(self, message: Message) -> None:
        began = self._loop.time()
        self._waiting.append(began)
        if self._timer is None:
            self._timer = self._loop.call_at(began + self._limit_s, self._look)
        try:
            await self._send(message)
        finally:
            self._waiting.remove(began)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return  # the next message sets it again
        due = min(self._waiting) + self._limit_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
            return
        self.late = True
        self._on_late()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _EventStream(EventSourceResponse):
    """The library's response, whose every send is bounded by the ``send`` it is given."""

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        await send(message)  # a scope without a limit around each event would cost as much as encoding it


async def stream_session(
    session: Session, settings: Settings, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends the session's events until the last one; the connection of a reader too slow is cut off.

    So is one whose session was revoked while its reader is behind: what it hasn't got it doesn't get.
    """
    response = _EventStream(
        _encoded(session),
        headers={"Cache-Control": "no-store", "X-Request-Id": session.request_id},
        sep="\n",
        ping=settings.heartbeat_s,
        ping_message_factory=_heartbeat,
        # On SIGTERM the registry drains; the library's own exit watcher only comes after that.
        shutdown_grace_period=settings.drain_s + 1,
    )
    with anyio.CancelScope() as sending:
        timely = _TimelySend(send, settings.send_timeout_s, sending.cancel)
        try:
            await response(scope, receive, timely)
        finally:
            timely.close()
    if timely.late:
        session.cancel(CloseReason.SLOW_READER)
        await _cut_off(scope, receive)


async def _cut_off(scope: Scope, receive: Receive) -> None:
    """Without it the server would close, and wait for ever for the reader to take the rest."""
    abort = abort_of(scope)
    if abort is not None:
        abort()
        with anyio.move_on_after(_ABORT_CAP_S):  # until the server knows; it would log an unfinished response
            await receive()
