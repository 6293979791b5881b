"""The bounded channel between the task that makes an answer and the response that sends it."""

import asyncio
from collections import deque

from gateway.stream.protocol import Delta, Event


class EventChannel:
    """Text is joined while the reader is busy, and for ``coalesce_ms`` after each delta.

    One writer, one reader, one event loop. The writer waits while ``limit_bytes`` of text are unread.
    """

    def __init__(self, limit_bytes: int, coalesce_ms: int, coalesce_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._coalesce_s = coalesce_ms / 1000
        self._coalesce_bytes = coalesce_bytes
        self._events: deque[Event] = deque()
        self._text: list[str] = []
        self._text_bytes = 0
        self._last_delta_at = float("-inf")
        self._closed = False
        self._reader: asyncio.Future[None] | None = None  # while it waits
        self._wanted_bytes = 1  # text that is worth waking it for
        self._writer: asyncio.Future[None] | None = None  # while it waits
        self._loop = asyncio.get_running_loop()

    @property
    def unread_bytes(self) -> int:
        return self._text_bytes

    def put(self, event: Event) -> None:
        """Queues an event behind all text so far; at most a handful an answer, so never blocks."""
        if not self._closed:
            self._flush_text()
            self._events.append(event)
            self._wake()

    async def write(self, text: str) -> None:
        """Adds text; waits while the reader is too far behind."""
        while self._text_bytes >= self._limit_bytes and not self._closed:
            await self._room()
        if text and not self._closed:
            self._text.append(text)
            self._text_bytes += len(text.encode())
            if self._text_bytes >= self._wanted_bytes:
                self._wake()

    def close(self, *last: Event, discard: bool = False) -> None:
        """Accepts nothing after ``last``; with ``discard`` that comes in place of all that is unread, also of
        an earlier last event.
        """
        if discard:
            self._closed = False
            self._events.clear()
            self._text.clear()
            self._text_bytes = 0
        for event in last:
            self.put(event)
        self._closed = True
        self._wake()
        self._let_write()

    async def next(self) -> Event | None:
        """The next event; None when the channel is closed and empty."""
        while True:
            if self._events:
                return self._events.popleft()
            if self._text:
                await self._gather()
                if self._events:
                    continue
                return self._take_text()
            if self._closed:
                return None
            await self._woken()

    async def _gather(self) -> None:
        """Waits until a delta is due: enough bytes, enough time, or something else to say."""
        due = self._last_delta_at + self._coalesce_s
        if self._closed or self._text_bytes >= self._coalesce_bytes or self._loop.time() >= due:
            return
        # a timer that wakes the reader costs a third of a scope that cancels it
        timer = self._loop.call_at(due, self._wake)
        self._wanted_bytes = self._coalesce_bytes
        try:
            await self._woken()
        finally:
            self._wanted_bytes = 1
            timer.cancel()

    async def _woken(self) -> None:
        self._reader = self._loop.create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def _room(self) -> None:
        self._writer = self._loop.create_future()
        try:
            await self._writer
        finally:
            self._writer = None

    def _let_write(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _flush_text(self) -> None:
        if self._text:
            delta = self._take_text()
            if delta is not None:
                self._events.append(delta)

    def _take_text(self) -> Delta | None:
        text = "".join(self._text)
        self._text.clear()
        self._text_bytes = 0
        self._last_delta_at = self._loop.time()
        self._let_write()
        return Delta(text) if text else None
