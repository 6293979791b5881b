"""A session: one running answer, its channel to the client, and the one way to end it early."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import anyio

from gateway.access.authorizer import DocumentRef
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    Killed,
    QuotaUnavailable,
    RevocationFeedStale,
    ShuttingDown,
    Stopped,
    UpstreamFailed,
)
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import AnswerStatus, Done, Error, Event, Meta, Revoked, StreamOrder, StreamState


class CloseReason(StrEnum):
    """Why a session ended. FAILED covers requests that never began to be answered, such as a 400."""

    COMPLETED = "completed"
    FAILED = "failed"
    CLIENT_GONE = "client_gone"
    CLIENT_STOP = "client_stop"
    OPERATOR_KILL = "operator_kill"
    DEADLINE = "deadline"
    REVOKED = "revoked"
    FEED_STALE = "revocation_feed_stale"
    QUOTA_LOST = "quota_lost"
    UPSTREAM = "upstream"
    SLOW_READER = "slow_reader"
    SHUTTING_DOWN = "shutting_down"


#: the reasons that cut a session short, as ``gateway_cancels_total`` counts them
CANCEL_REASONS: frozenset[CloseReason] = frozenset(CloseReason) - {
    CloseReason.COMPLETED,
    CloseReason.FAILED,
}

#: what the caller is told when a session ends for this reason; None = nobody is there to tell
CLOSE_ERRORS: Mapping[CloseReason, type[GatewayError] | None] = {
    CloseReason.CLIENT_GONE: None,
    CloseReason.SLOW_READER: None,
    CloseReason.CLIENT_STOP: Stopped,
    CloseReason.OPERATOR_KILL: Killed,
    CloseReason.SHUTTING_DOWN: ShuttingDown,
    CloseReason.FEED_STALE: RevocationFeedStale,
    CloseReason.QUOTA_LOST: QuotaUnavailable,
}

#: the reasons after which nothing unread may leave any more
_UNTOLD = frozenset({CloseReason.REVOKED, CloseReason.FEED_STALE})
#: the reasons after which what was written still leaves, and its reader may take his time
_DELIVERED = frozenset(CloseReason) - _UNTOLD - {CloseReason.CLIENT_GONE, CloseReason.SLOW_READER}
#: the other reasons that end an answer which is whole, while its last event wasn't taken
_STOPS = frozenset({CloseReason.CLIENT_STOP, CloseReason.OPERATOR_KILL})


class Releasable(Protocol):
    """Something held for a session: a permit, a lease. Releasing twice is harmless."""

    def release(self) -> None: ...


class Session:
    """Ends by ``complete``, ``fail``, ``cancel`` or ``revoke``, whichever comes first.

    What was written before an end may still be on its way to a slow reader. Until all of it has left, a
    recall takes the place of that end, and of an answer's own also a stop and a kill.

    The pump task runs inside ``cancel_scope`` and owns the upstream; the response only reads the
    channel. Everything runs on one event loop, so a plain check-and-set is atomic.
    """

    def __init__(self, request_id: str, channel: EventChannel) -> None:
        self.request_id = request_id
        self.started_at = time.time()
        #: on this process's monotonic clock; None while it runs
        self.ended_at: float | None = None
        self.principal: Principal | None = None
        #: the rights as they were last found to hold; None before the question is bound
        self.scope: AccessScope | None = None
        self.documents: frozenset[DocumentRef] = frozenset()
        self.cancel_scope = anyio.CancelScope()
        self.close_reason: CloseReason | None = None
        self.failure: GatewayError | None = None
        self.status: AnswerStatus | None = None
        #: when the revocation that ended it was accepted, on this process's monotonic clock
        self.revoked_at: float | None = None
        self._channel = channel
        self._order = StreamOrder()
        self._opening = anyio.Event()
        self._meta: Meta | None = None
        self._text_written = False
        self._unsent: Callable[[], int] = int
        self._delivered = False
        self._held: list[Releasable] = []
        self._on_end: list[Callable[[], None]] = []

    # -- what the pump does ---------------------------------------------------------------------

    def hold(self, item: Releasable) -> None:
        """Kept until ``release_all``; called right after the item was acquired, without an await."""
        self._held.append(item)

    def open(self, meta: Meta) -> None:
        """From here on the response is a stream and every failure is an event."""
        if self.close_reason is None:
            self._channel.put(meta)
            self._meta = meta
            self._opening.set()

    @property
    def opened(self) -> bool:
        """Whether ``meta`` was queued: the response is, or is about to be, a stream."""
        return self._meta is not None

    async def write(self, text: str) -> None:
        """Sends text; waits while the client is too far behind."""
        if self.close_reason is None:
            self._text_written = True
            await self._channel.write(text)

    def complete(self, done: Done) -> bool:
        """Ends the session with its answer or its refusal."""
        if not self._close(CloseReason.COMPLETED):
            return False
        self.status = done.status
        self._channel.close(done)
        return True

    def fail(self, error: GatewayError) -> bool:
        """Ends the session with an error: an HTTP status before ``open``, an event after it."""
        reason = CloseReason.FAILED
        if isinstance(error, DeadlineExceeded):
            reason = CloseReason.DEADLINE
        elif isinstance(error, UpstreamFailed):
            reason = CloseReason.UPSTREAM
        return self._end_with_error(reason, error)

    # -- what everybody else does ---------------------------------------------------------------

    def cancel(self, reason: CloseReason) -> bool:
        """The one cancel path. Idempotent: who ends it gets True."""
        kind = CLOSE_ERRORS[reason]
        if kind is not None:
            return self._end_with_error(reason, kind())
        if not self._close(reason):
            return False
        self._channel.close(discard=True)
        self._opening.set()
        self.cancel_scope.cancel(reason.value)
        return True

    def revoke(self, event: Revoked, error: GatewayError, revoked_at: float | None = None) -> bool:
        """Ends it with ``revoked``, everything unread dropped; before ``open`` with the error.

        ``revoked_at`` is the monotonic moment from which the stop is measured; None: it isn't.
        """
        if not self._end(CloseReason.REVOKED, event, error):
            return False
        self.revoked_at = revoked_at
        return True

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Called in the moment it ends, at once when it has ended; and again when another end takes its
        place.
        """
        self._on_end.append(callback)
        if self.close_reason is not None:
            callback()

    @property
    def recallable(self) -> bool:
        """Whether it runs, or some of what it wrote hasn't left for its reader's machine."""
        if self.close_reason is None:
            return True
        if self._meta is None or self.close_reason not in _DELIVERED or self._delivered:
            return False
        return self._order.state is not StreamState.CLOSED or self._unsent() > 0

    @property
    def recalled(self) -> bool:
        """Whether it ended so that nothing unread may leave any more."""
        return self.close_reason in _UNTOLD

    # -- what the response does -----------------------------------------------------------------

    async def opening(self) -> GatewayError | None:
        """Waits for the start: None = stream now, else the failure to answer with."""
        await self._opening.wait()
        return self.failure

    async def events(self) -> AsyncIterator[tuple[int, Event]]:
        """Numbered events in legal order, until the last one. Never yields inside a scope."""
        while (event := await self._channel.next()) is not None:
            yield self._order.accept(event), event

    def sent_by(self, unsent: Callable[[], int]) -> None:
        """``unsent`` tells how many bytes of what was read here haven't reached the reader's machine."""
        self._unsent = unsent

    def delivered(self) -> None:
        """The response is over: whatever hasn't left by now never will, or is out of reach."""
        self._delivered = True

    def release_all(self) -> None:
        """Gives back whatever is held, newest first; called by the outermost ``finally``."""
        while self._held:
            self._held.pop().release()

    # -------------------------------------------------------------------------------------------

    def _close(self, reason: CloseReason) -> bool:
        if not self._may_end(reason):
            return False
        self.close_reason = reason
        self.status = None
        self.ended_at = time.monotonic()
        for callback in self._on_end:
            callback()
        return True

    def _may_end(self, reason: CloseReason) -> bool:
        if self.close_reason is None:
            return True
        if reason in _UNTOLD:
            return self.recallable
        whole = self.close_reason is CloseReason.COMPLETED and self.recallable
        return whole and reason in _STOPS and self._order.state is not StreamState.CLOSED

    def _end_with_error(self, reason: CloseReason, error: GatewayError) -> bool:
        event = Error(error.code, error.title, error.detail, self._text_written, error.retry_after_ms)
        return self._end(reason, event, error)

    def _end(self, reason: CloseReason, event: Error | Revoked, error: GatewayError) -> bool:
        """Ends it with the event once ``meta`` was queued, with the error before.

        Where nothing unread may leave, a ``meta`` that hasn't left still comes first, as the order wants, but
        without its sources. When the last event has left, nothing can come any more.
        """
        again = self.close_reason is not None
        if not self._close(reason):
            return False
        if self._meta is None:
            self.failure = error
            self._channel.close()
        elif again or reason in _UNTOLD:
            self._channel.close(*self._instead(self._meta, event), discard=True)
        else:
            self._channel.close(event)
        self._opening.set()
        self.cancel_scope.cancel(reason.value)
        return True

    def _instead(self, meta: Meta, event: Error | Revoked) -> tuple[Event, ...]:
        """What comes in place of all that is unread."""
        if self._order.state is StreamState.CLOSED:
            return ()
        return (replace(meta, sources=()), event) if self._order.state is StreamState.IDLE else (event,)
