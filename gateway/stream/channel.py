"""The bounded channel between the task that makes an answer and the response that sends it."""

from collections import deque

import anyio

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
        self._readable = anyio.Event()
        self._writable = anyio.Event()

    @property
    def unread_bytes(self) -> int:
        return self._text_bytes

    def put(self, event: Event) -> None:
        """Queues an event behind all text so far; at most a handful an answer, so never blocks."""
        if not self._closed:
            self._flush_text()
            self._events.append(event)
            self._readable.set()

    async def write(self, text: str) -> None:
        """Adds text; waits while the reader is too far behind."""
        while self._text_bytes >= self._limit_bytes and not self._closed:
            self._writable = anyio.Event()
            await self._writable.wait()
        if text and not self._closed:
            self._text.append(text)
            self._text_bytes += len(text.encode())
            self._readable.set()

    def close(self, *last: Event, discard: bool = False) -> None:
        """Accepts nothing after ``last``; with ``discard`` what is unread is dropped first."""
        if discard:
            self._events.clear()
            self._text.clear()
            self._text_bytes = 0
        for event in last:
            self.put(event)
        self._closed = True
        self._readable.set()
        self._writable.set()

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
            self._readable = anyio.Event()
            await self._readable.wait()

    async def _gather(self) -> None:
        """Waits until a delta is due: enough bytes, enough time, or something else to say."""
        due = self._last_delta_at + self._coalesce_s
        with anyio.move_on_at(due):
            while self._text_bytes < self._coalesce_bytes and not (self._closed or self._events):
                self._readable = anyio.Event()
                await self._readable.wait()

    def _flush_text(self) -> None:
        if self._text:
            delta = self._take_text()
            if delta is not None:
                self._events.append(delta)

    def _take_text(self) -> Delta | None:
        text = "".join(self._text)
        self._text.clear()
        self._text_bytes = 0
        self._last_delta_at = anyio.current_time()
        self._writable.set()
        return Delta(text) if text else None
