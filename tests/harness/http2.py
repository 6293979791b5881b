"""A raw HTTP/2 client over one TLS connection (RFC 9113): sees every frame, leaves in every way.

Heads are written without compression (RFC 7541, section 6.2.2); of an answer's head only the status is read.
"""

import asyncio
import contextlib
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.client import EventReader, StreamEvent

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
_CANCEL = 8
_INITIAL_WINDOW_SIZE = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: of the static table (RFC 7541, appendix A), as their one byte
_STATUS_BY_INDEX = {0x88: 200, 0x89: 204, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


class Http2:
    """One connection of many streams. ``window`` is what each stream may send before anything is granted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, window: int) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 1
        self._streams: dict[int, asyncio.Queue[tuple[int, int, bytes]]] = defaultdict(asyncio.Queue)
        writer.write(_PREFACE)
        settings = _INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
        self._frame(SETTINGS, 0, 0, settings)
        self._reading = asyncio.create_task(self._read())

    def ask(self, token: str, question: str = "what?") -> int:
        """Sends a question; returns the number of its stream."""
        body = json.dumps({"question": question}).encode()
        headers = {
            ":method": "POST",
            ":scheme": "https",
            ":path": "/v1/answers",
            ":authority": "test",
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        return self.send(headers, body)

    def send(self, headers: Mapping[str, str], body: bytes) -> int:
        stream, self._next = self._next, self._next + 2
        self._frame(HEADERS, END_HEADERS, stream, b"".join(map(_literal, headers, headers.values())))
        self._frame(DATA, END_STREAM, stream, body)
        return stream

    def cancel(self, stream: int) -> None:
        self._frame(RST_STREAM, 0, stream, _CANCEL.to_bytes(4, "big"))

    def close(self) -> None:
        self._writer.transport.abort()

    async def status(self, stream: int) -> int:
        kind, _, payload = await self._streams[stream].get()
        assert kind == HEADERS, (kind, payload)
        return _status(payload)

    async def events(self, stream: int) -> AsyncIterator[StreamEvent]:
        """Of an answer whose status was read. Raises ConnectionResetError where the server breaks it off."""
        reader = EventReader()
        async for data in self.data(stream):
            for event in reader.feed(data):
                yield event

    async def data(self, stream: int) -> AsyncIterator[bytes]:
        while True:
            kind, flags, payload = await self._streams[stream].get()
            if kind == RST_STREAM:
                raise ConnectionResetError(f"stream {stream} was reset")
            if payload:
                yield payload
                self._grant(len(payload), stream)
            if flags & END_STREAM:
                return

    def _grant(self, length: int, stream: int) -> None:
        for one in (0, stream):
            self._frame(WINDOW_UPDATE, 0, one, length.to_bytes(4, "big"))

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        self._writer.write(head + payload)

    async def _read(self) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                self._received(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        for stream in self._streams.values():
            stream.put_nowait((RST_STREAM, 0, b""))

    def _received(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind in {DATA, HEADERS, RST_STREAM}:
            self._streams[stream].put_nowait((kind, flags, payload))
        elif kind in {SETTINGS, PING} and not flags & ACK:
            self._frame(kind, ACK, 0, payload if kind == PING else b"")

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.wait({self._reading})
        self._writer.transport.abort()


def _literal(name: str, value: str) -> bytes:
    """A field without indexing, its name and value as they are."""
    return b"\x00" + _string(name.encode()) + _string(value.encode())


def _string(text: bytes) -> bytes:
    """An integer of seven bits (RFC 7541, section 5.1), and the text."""
    if len(text) < 127:
        return bytes([len(text)]) + text
    length, rest = bytearray([127]), len(text) - 127
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    return bytes([*length, rest]) + text


def _status(head: bytes) -> int:
    """The first field of a head: indexed, or the name's index and three digits."""
    start = 1 if head[0] & 0xE0 == 0x20 else 0  # a new size of the table may precede it
    indexed = _STATUS_BY_INDEX.get(head[start])
    return indexed if indexed is not None else int(head[start + 2 : start + 5])


@asynccontextmanager
async def http2(port: int, certificate: bytes, *, window: int = 65_535) -> AsyncIterator[Http2]:
    """A connection that believes this certificate and no other."""
    context = ssl.create_default_context(cadata=certificate.decode())
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="localhost"
    )
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    connection = Http2(reader, writer, window)
    try:
        yield connection
    finally:
        await connection.aclose()
