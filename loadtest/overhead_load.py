"""The load of the overhead benchmark: raw sockets, open loop, in a process of its own.

``python -m loadtest.overhead_load`` takes one JSON command a line on stdin and answers each with one line:

open    {port, requests, mark, every_s}  starts a stream every ``every_s`` seconds, whatever the others do;
                                         answers once each has its first token: {first_ms: [...]}
look    {}                               tokens and gaps since the last look: {tokens, gaps_ms: [...]}
close   {}                               leaves every stream
ask     {port, request, mark}            one whole answer: {first_ms}

``mark`` is what comes in front of a stream's first token; every token holds ``TOKEN_LETTER`` exactly once,
and no framing does. Times count from when a stream was due, not from when there was time for it.
``{error}`` says that a stream broke.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import uvloop

TOKEN_LETTER = b"w"
_HEAD_END = b"\r\n\r\n"
_BODY_END = b"0\r\n\r\n"
_SHOWN_BYTES = 600
_PATIENCE_S = 60.0


class Broken(Exception):
    """A stream that ended, or never began to stream."""


class Stream(asyncio.Protocol):
    """One request on one connection. ``ended`` is set when the server is through or the stream broke."""

    def __init__(self, request: bytes, mark: bytes, due: float, gaps: list[float]) -> None:
        self._request = request
        self._mark = mark
        self._due = due
        self._gaps = gaps
        self._head = self._tail = b""
        self._last_at = 0.0
        self._leaving = False
        self.tokens = 0
        self.first_ms: float | None = None
        self.first = asyncio.Event()
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self._tail = data
        if self.first_ms is None:
            data = self._before_first(data, now)
        else:
            self._gaps.append(now - self._last_at)
        found = data.count(TOKEN_LETTER)
        if found:
            self.tokens += found
            self._last_at = now
        if data.endswith(_BODY_END):
            self.ended.set()

    def _before_first(self, data: bytes, now: float) -> bytes:
        """What comes after the mark, once it is there."""
        self._head += data
        _, mark, rest = self._head.partition(self._mark)
        if not mark:
            if self._head.endswith(_BODY_END):
                self.ended.set()
                self.first.set()
            return b""
        self.first_ms = (now - self._due) * 1000
        self.first.set()
        return rest

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()
        self.first.set()

    @property
    def broken(self) -> bool:
        return self.first_ms is None or (self.ended.is_set() and not self._leaving)

    def said(self) -> str:
        """Start and end of an answer that isn't the expected one."""
        return f"{self._head[:_SHOWN_BYTES]!r} … {self._tail[-_SHOWN_BYTES:]!r}"

    def leave(self) -> None:
        self._leaving = True
        self._transport.abort()


class Load:
    """The streams of one target, and the commands on them."""

    def __init__(self) -> None:
        self._streams: list[Stream] = []
        self._gaps: list[float] = []
        self._seen = 0

    async def open(
        self, *, port: int, requests: list[str], mark: str, every_s: float = 0.0
    ) -> dict[str, Any]:
        start = time.monotonic()
        opened = []
        async with asyncio.timeout(_PATIENCE_S + len(requests) * every_s):
            for index, request in enumerate(requests):
                due = start + index * every_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                opened.append(await self._start(port, request, mark, due))
            for stream in opened:
                await stream.first.wait()
        self._refuse_broken()
        return {"first_ms": [stream.first_ms for stream in opened]}

    async def _start(self, port: int, request: str, mark: str, due: float) -> Stream:
        stream = Stream(request.encode(), mark.encode(), due, self._gaps)
        await asyncio.get_running_loop().create_connection(lambda: stream, "127.0.0.1", port)
        self._streams.append(stream)
        return stream

    async def look(self) -> dict[str, Any]:
        self._refuse_broken()
        seen, self._seen = self._seen, sum(stream.tokens for stream in self._streams)
        gaps = [gap * 1000 for gap in self._gaps]
        self._gaps.clear()
        return {"tokens": self._seen - seen, "gaps_ms": gaps}

    async def close(self) -> dict[str, Any]:
        for stream in self._streams:
            stream.leave()
        for stream in self._streams:
            await stream.ended.wait()
        self._streams.clear()
        self._gaps.clear()
        self._seen = 0
        return {}

    async def ask(self, *, port: int, request: str, mark: str) -> dict[str, Any]:
        async with asyncio.timeout(_PATIENCE_S):
            stream = await self._start(port, request, mark, time.monotonic())
            await stream.ended.wait()
        if stream.first_ms is None:
            raise Broken(stream.said())
        await self.close()
        return {"first_ms": stream.first_ms}

    def _refuse_broken(self) -> None:
        broken = [stream for stream in self._streams if stream.broken]
        if broken:
            raise Broken(f"{len(broken)} of {len(self._streams)} streams broke: {broken[0].said()}")


async def _commands() -> None:
    load = Load()
    lines = asyncio.StreamReader(limit=2**26)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    doing: dict[str, Callable[..., Any]] = {
        "open": load.open,
        "look": load.look,
        "close": load.close,
        "ask": load.ask,
    }
    while line := await lines.readline():
        command = json.loads(line)
        try:
            answer = await doing[command.pop("do")](**command)
        except (Broken, OSError, TimeoutError) as error:  # OSError: refused, reset
            answer = {"error": str(error) or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_commands())
