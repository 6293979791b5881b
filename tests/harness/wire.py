"""A raw HTTP/1.1 client over one socket: sees every byte, leaves in every way."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.client import EventReader, StreamEvent


@dataclass
class Head:
    status: int
    headers: Mapping[str, str]


class Wire:
    """One connection, one request. ``body`` and ``events`` undo the chunked coding."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.head: Head | None = None

    async def send(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        hold_back: int = 0,
    ) -> None:
        """``hold_back`` leaves that many bytes of the body unsent."""
        lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(body)}"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._writer.write(head + body[: len(body) - hold_back])
        await self._writer.drain()

    async def ask(self, token: str, question: str = "what?", hold_back: int = 0, **fields: Any) -> None:
        body = json.dumps({"question": question, **fields}).encode()
        await self.send(
            "POST",
            "/v1/answers",
            token=token,
            body=body,
            headers={"Content-Type": "application/json"},
            hold_back=hold_back,
        )

    async def read_head(self) -> Head:
        raw = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        self.head = Head(int(first.split()[1]), headers)
        return self.head

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; ends early when the server breaks it off."""
        head = self.head or await self.read_head()
        if head.status in {204, 304}:
            return
        if "content-length" in head.headers:
            yield await self._reader.readexactly(int(head.headers["content-length"]))
            return
        while True:
            line = await self._reader.readline()
            size = int(line.strip() or b"0", 16)
            content = await self._reader.readexactly(size + 2)
            if size == 0:
                return
            yield content[:-2]

    async def body(self) -> bytes:
        return b"".join([chunk async for chunk in self.chunks()])

    async def json(self) -> Any:
        return json.loads(await self.body())

    async def events(self) -> AsyncIterator[StreamEvent]:
        reader = EventReader()
        async for chunk in self.chunks():
            for event in reader.feed(chunk):
                yield event

    async def all_events(self) -> list[StreamEvent]:
        return [event async for event in self.events()]

    def half_close(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        """FIN."""
        self._writer.close()

    def abort(self) -> None:
        """RST: what an OS sends for a process that was killed."""
        sock: socket.socket = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


@asynccontextmanager
async def connected(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[Wire]:
    """``receive_buffer`` in bytes keeps the kernel from reading ahead for a client that doesn't."""
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # the other side was quicker
            await writer.wait_closed()


async def request(port: int, method: str, path: str, **arguments: Any) -> tuple[Head, bytes]:
    """One request and its whole answer."""
    async with connected(port) as wire:
        await wire.send(method, path, **arguments)
        head = await wire.read_head()
        return head, await wire.body()


async def ask(
    port: int, token: str, question: str = "what?", **fields: Any
) -> tuple[Head, list[StreamEvent]]:
    """One question; no events when the answer is a problem."""
    async with connected(port) as wire:
        await wire.ask(token, question, **fields)
        head = await wire.read_head()
        if head.status != 200:
            return head, []
        return head, await wire.all_events()
