"""One question on a connection of its own, over a bare socket, timed event by event."""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, cast

import httptools

from loadtest.client_events import Events
from loadtest.client_manner import STAYS, How, Manner, Phase
from loadtest.client_record import REJECTIONS, Ending, Record

_RESET = struct.pack("ii", 1, 0)
#: keeps the kernel from reading ahead for a client that reads slowly
_SLOW_BUFFER_BYTES = 4096
_ENDINGS = {"error": Ending.ERROR, "revoked": Ending.REVOKED}


def request_bytes(
    path: str, token: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole POST request of JSON."""
    content = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


class Stream(asyncio.Protocol):
    """Asks, reads, leaves as its manner says; ``over`` is set when the connection is closed.

    Moments are those of ``time.monotonic``.
    """

    def __init__(self, token: str, body: Mapping[str, Any], manner: Manner = STAYS) -> None:
        self._token = token
        headers = {} if manner.reuses else {"Cache-Control": "no-store"}
        self._request = request_bytes("/v1/answers", token, body, headers)
        self._manner = manner
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._events = Events()
        self._problem = b""
        self._timers: list[asyncio.TimerHandle] = []
        self._acknowledging = False
        self.over = asyncio.Event()
        #: set at ``meta``, at the first delta, and in the end in any case
        self.opened = asyncio.Event()
        self.speaking = asyncio.Event()
        self.ending: Ending | None = None
        self.status: int | None = None
        self.code: str | None = None
        self.request_id: str | None = None
        self.cached = False
        self.data: Mapping[str, Any] = {}
        self.headers_at: float | None = None
        self.meta_at: float | None = None
        self.first_delta_at: float | None = None
        self.last_byte_at: float | None = None
        self.ended_at: float | None = None
        self.ack_at: float | None = None
        self.ack_status: int | None = None
        self.left_at: float | None = None
        self.left: Phase | None = None
        self.deltas = 0
        self.longest_gap_s = 0.0
        self._last_delta_at: float | None = None

    # -- what the loop calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another base
        self._transport.write(self._request)
        leaving = self._manner.leaving
        if leaving is not None and leaving.phase is Phase.BEFORE_HEADERS:
            self._timers.append(self._loop.call_later(leaving.after_s, self.leave, leaving.how))

    def data_received(self, data: bytes) -> None:
        if self.left is not None:
            return
        self.last_byte_at = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()
            return
        if self._manner.bytes_per_s is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            pause_s = len(data) / self._manner.bytes_per_s
            self._timers.append(self._loop.call_later(pause_s, self._read_on))

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers:
            timer.cancel()
        if self.ending is None:
            self._end(Ending.UNREACHABLE if self.status is None else Ending.TRUNCATED)
        for event in (self.opened, self.speaking, self.over):
            event.set()

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    # -- what the parser calls --------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        if not self._acknowledging:
            self.status = self._parser.get_status_code()
            self.headers_at = self.last_byte_at

    def on_body(self, body: bytes) -> None:
        if self._acknowledging or self.left is not None:  # one read may hold more than the last event wanted
            return
        if self.status != 200:
            self._problem += body
            return
        for name, data in self._events.feed(body):
            self._event(name, data)
            if self.left is not None:
                return

    def on_message_complete(self) -> None:
        if self.left is not None:
            return
        if self._acknowledging:
            self.ack_at, self.ack_status = self.last_byte_at, self._parser.get_status_code()
            self._transport.close()
            return
        if self.status != 200:
            self._refused()
        if self.ended_at is not None and self.status == 200 and self._manner.acknowledges:
            self._acknowledge()
        else:
            self._transport.close()

    # -- what it makes of it ----------------------------------------------------------------------

    def _event(self, name: str, data: Mapping[str, Any]) -> None:
        leaving = self._manner.leaving
        if name == "delta":
            self._delta()
            if leaving and leaving.phase is Phase.MID_STREAM and self.deltas >= leaving.after_deltas:
                self.leave(leaving.how)
        elif name == "meta":
            self.meta_at, self.request_id = self.last_byte_at, data["request_id"]
            self.cached = bool(data.get("cached"))
            self.opened.set()
            if leaving and leaving.phase is Phase.AFTER_META:
                self.leave(leaving.how)
        else:
            self.data = data
            self.code = data.get("code") or data.get("reason")
            refused = data.get("status") == "REFUSED_NO_EVIDENCE"
            self._end(_ENDINGS.get(name, Ending.REFUSED if refused else Ending.ANSWERED))

    def _delta(self) -> None:
        self.deltas += 1
        now = self.last_byte_at or 0.0
        if self._last_delta_at is None:
            self.first_delta_at = now
            self.speaking.set()
        else:
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_delta_at)
        self._last_delta_at = now

    def _refused(self) -> None:
        try:
            self.code = json.loads(self._problem).get("code")
        except (ValueError, AttributeError):  # a proxy's own page
            self.code = f"http_{self.status}"
        self._end(Ending.REJECTED if self.status in REJECTIONS else Ending.ERROR)

    def _end(self, ending: Ending) -> None:
        if self.ending is None:
            self.ending, self.ended_at = ending, time.monotonic()

    def _acknowledge(self) -> None:
        """On the same connection, as a browser would."""
        self._acknowledging = True
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request_bytes(f"/v1/answers/{self.request_id}/ack", self._token, {}))

    def leave(self, how: How) -> None:
        """Goes away now. Does nothing when the connection is closing already."""
        if self._transport.is_closing() or self.left is not None:
            return
        self.left = self._phase()
        self._end(Ending.LEFT)
        if how is How.RST:
            raw: socket.socket = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.left_at = time.monotonic()
        if how is How.RST:
            self._transport.abort()
        else:
            self._transport.close()

    def _phase(self) -> Phase:
        if self.ended_at is not None:
            return Phase.ENDED
        if self.deltas:
            return Phase.MID_STREAM
        return Phase.BEFORE_HEADERS if self.meta_at is None else Phase.AFTER_META

    def give_up(self) -> None:
        """The client's own patience is over."""
        self.code = "client_timeout"
        self._end(Ending.ERROR)
        self._transport.abort()

    def record(self, due: float, at: float, lag_s: float) -> Record:
        """Once it is over."""

        def ms(moment: float | None) -> float | None:
            return None if moment is None else round((moment - due) * 1000, 3)

        return Record(
            at=round(at, 6),
            lag_ms=round(lag_s * 1000, 3),
            ending=self.ending or Ending.UNREACHABLE,
            status=self.status,
            code=self.code,
            headers_ms=ms(self.headers_at),
            meta_ms=ms(self.meta_at),
            first_delta_ms=ms(self.first_delta_at),
            last_ms=ms(self.ended_at),
            ack_ms=ms(self.ack_at),
            ack_status=self.ack_status,
            server_ttft_ms=(self.data.get("timings") or {}).get("ttft_ms"),
            gap_ms=round(self.longest_gap_s * 1000, 3) if self.deltas > 1 else None,
            deltas=self.deltas,
            cached=self.cached,
            left=self.left,
            request_id=self.request_id,
        )


async def opened(
    port: int, token: str, body: Mapping[str, Any], manner: Manner = STAYS, host: str = "127.0.0.1"
) -> Stream:
    """A question that is on its way. Raises OSError when nobody listens."""
    loop = asyncio.get_running_loop()
    stream = Stream(token, body, manner)
    if manner.bytes_per_s is None:
        await loop.create_connection(lambda: stream, host, port)
        return stream
    raw = socket.socket()
    raw.setblocking(False)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SLOW_BUFFER_BYTES)
    try:
        await loop.sock_connect(raw, (host, port))
    except BaseException:
        raw.close()
        raise
    await loop.create_connection(lambda: stream, sock=raw)
    return stream
