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
from gateway.web.connection import Connection, connection_of

_LOOK_S = 0.005
#: on SIGTERM the registry drains, and the stuck are cut off; only then may the library's own exit watcher
#: come, which leaves answers without an end
_AFTER_DRAIN_S = 10

_NAMES = {kind: name.encode() for kind, name in EVENT_NAMES.items()}


def encode(sequence: int, event: Event) -> bytes:
    """One event: name, id, one line of JSON. JSON escapes every line end, so framing is safe."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (_NAMES[type(event)], sequence, orjson.dumps(event))


def frame(name: bytes, sequence: int, content: object) -> bytes:
    """One event of a stream that isn't an answer."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, sequence, orjson.dumps(content))


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
        self._cutoff: asyncio.TimerHandle | None = None
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

    def end_within(self, limit_s: float) -> None:
        """From now on not one message but all that are left have to leave within the limit."""
        self._cutoff = self._loop.call_later(limit_s, self._end)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return  # the next message sets it again
        due = min(self._waiting) + self._limit_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self._end()

    def _end(self) -> None:
        self.late = True
        self._on_late()

    def close(self) -> None:
        for timer in (self._timer, self._cutoff):
            if timer is not None:
                timer.cancel()


class _EventStream(EventSourceResponse):
    """The library's response, whose every send is bounded by the ``send`` it is given."""

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        await send(message)  # a scope without a limit around each event would cost as much as encoding it


async def stream_session(
    session: Session, settings: Settings, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends the session's events until the last one; the connection of a reader too slow is cut off.

    So is one whose session was recalled while its reader is behind: its last event has
    ``revoked_send_ms`` to reach the client's machine, and what the kernel still holds then is dropped.

    What may be on its way to one reader, in bytes of text: three times ``session_buffer_bytes`` and a
    piece of the model's (unread in the channel, waiting to be sent, and in the connection's buffer), and
    ``2 * KERNEL_BYTES`` in the kernel. JSON adds a byte for each line end and quote.
    """
    response = _EventStream(
        _encoded(session),
        headers={"Cache-Control": "no-store", "X-Request-Id": session.request_id},
        sep="\n",
        ping=settings.heartbeat_s,
        ping_message_factory=_heartbeat,
        shutdown_grace_period=settings.drain_s + _AFTER_DRAIN_S,
    )
    connection = connection_of(scope)
    if connection is not None:
        session.sent_by(connection.unsent)
    with anyio.CancelScope() as sending:
        timely = _TimelySend(
            _taken_before_the_end(session, connection, send), settings.send_timeout_s, sending.cancel
        )

        def hurry() -> None:
            if session.recalled:
                timely.end_within(settings.revoked_send_ms / 1000)

        session.when_ended(hurry)
        try:
            await response(scope, receive, timely)
        finally:
            timely.close()
            session.delivered()
    if timely.late:
        session.cancel(CloseReason.SLOW_READER)
        # Without it the server would close, and wait for ever for the reader to take the rest.
        if connection is not None:
            connection.abort()


async def stream_frames(
    frames: AsyncIterator[bytes], settings: Settings, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends encoded events until they end or the client leaves; a reader too slow is cut off."""
    response = _EventStream(
        frames,
        headers={"Cache-Control": "no-store"},
        sep="\n",
        ping=settings.heartbeat_s,
        ping_message_factory=_heartbeat,
        shutdown_grace_period=settings.drain_s + _AFTER_DRAIN_S,
    )
    connection = connection_of(scope)
    if connection is not None:
        connection.leave_with_eof()
    with anyio.CancelScope() as sending:
        timely = _TimelySend(send, settings.send_timeout_s, sending.cancel)
        try:
            await response(scope, receive, timely)
        finally:
            timely.close()
    if timely.late and connection is not None:
        connection.abort()


def _taken_before_the_end(session: Session, connection: Connection | None, send: Send) -> Send:
    """A ``send`` that ends a recalled answer only when the client's machine has confirmed all of it.

    Once it has ended, its connection may be closed, and the kernel would go on with what it holds.
    """

    async def sending(message: Message) -> None:
        ends = message["type"] == "http.response.body" and not message.get("more_body", False)
        if ends:  # until all before it is with the kernel; its rights may end meanwhile
            await send({"type": "http.response.body", "body": b"", "more_body": True})
        while ends and session.recalled and connection is not None and connection.unsent():  # noqa: ASYNC110 - the kernel has no event for it
            await anyio.sleep(_LOOK_S)
        await send(message)

    return sending
