"""Server-sent events: a session's events as a response (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncIterator

import anyio
import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from gateway.settings import Settings
from gateway.stream.protocol import EVENT_NAMES, Event
from gateway.stream.session import CloseReason, Session
from gateway.web.connection import abort_of

_ABORT_CAP_S = 1.0


def encode(sequence: int, event: Event) -> bytes:
    """One event: name, id, one line of JSON. JSON escapes every line end, so framing is safe."""
    name = EVENT_NAMES[type(event)].encode()
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, sequence, orjson.dumps(event))


async def _encoded(session: Session) -> AsyncIterator[bytes]:
    async for sequence, event in session.events():
        yield encode(sequence, event)


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")


def _timely(send: Send, limit_s: float) -> Send:
    """The library bounds its events alone, not the first message and the last."""

    async def send_in_time(message: Message) -> None:
        with anyio.move_on_after(limit_s):
            await send(message)
            return
        raise SendTimeoutError()

    return send_in_time


async def stream_session(
    session: Session, settings: Settings, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends the session's events until the last one; the connection of a reader too slow is cut off.

    So is one whose session was revoked while its reader is behind: what it hasn't got it doesn't get.
    """
    response = EventSourceResponse(
        _encoded(session),
        headers={"Cache-Control": "no-store", "X-Request-Id": session.request_id},
        sep="\n",
        ping=settings.heartbeat_s,
        ping_message_factory=_heartbeat,
        # On SIGTERM the registry drains; the library's own exit watcher only comes after that.
        shutdown_grace_period=settings.drain_s + 1,
    )
    too_slow = False
    try:
        await response(scope, receive, _timely(send, settings.send_timeout_s))
    except* SendTimeoutError:  # a group when an event and a heartbeat were both waiting
        too_slow = True
    if too_slow:
        session.cancel(CloseReason.SLOW_READER)
        await _cut_off(scope, receive)


async def _cut_off(scope: Scope, receive: Receive) -> None:
    """Without it the server would close, and wait for ever for the reader to take the rest."""
    abort = abort_of(scope)
    if abort is not None:
        abort()
        with anyio.move_on_after(_ABORT_CAP_S):  # until the server knows; it would log an unfinished response
            await receive()
