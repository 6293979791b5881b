"""Server-sent events: a session's events as a response (WHATWG HTML, section 9.2)."""

from collections.abc import AsyncIterator

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from gateway.settings import Settings
from gateway.stream.protocol import EVENT_NAMES, Event
from gateway.stream.session import CloseReason, Session


def encode(sequence: int, event: Event) -> bytes:
    """One event: name, id, one line of JSON. JSON escapes every line end, so framing is safe."""
    name = EVENT_NAMES[type(event)].encode()
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, sequence, orjson.dumps(event))


async def _encoded(session: Session) -> AsyncIterator[bytes]:
    async for sequence, event in session.events():
        yield encode(sequence, event)


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")


async def stream_session(
    session: Session, settings: Settings, scope: Scope, receive: Receive, send: Send
) -> None:
    """Sends the session's events until the last one; a reader that is too slow is cut off."""
    response = EventSourceResponse(
        _encoded(session),
        headers={"Cache-Control": "no-store", "X-Request-Id": session.request_id},
        sep="\n",
        ping=settings.heartbeat_s,
        ping_message_factory=_heartbeat,
        send_timeout=settings.send_timeout_s,
        # On SIGTERM the registry drains; the library's own exit watcher only comes after that.
        shutdown_grace_period=settings.drain_s + 1,
    )
    try:
        await response(scope, receive, send)
    except SendTimeoutError:
        session.cancel(CloseReason.SLOW_READER)
