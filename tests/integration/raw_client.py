"""A client of bytes: what an HTTP library wouldn't send, in any order, and every byte that comes back."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import psutil

from tests.harness.process import eventually

PATIENCE_S = 20


@dataclass(frozen=True)
class Answer:
    """One response with a content-length, or a head alone."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> Any:
        """Of a problem."""
        return json.loads(self.body)["code"]


class RawClient:
    """One connection. Everything that waits gives up after PATIENCE_S."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, content: bytes) -> None:
        """Also to a server that reads no more: then nothing comes of it."""
        with anyio.fail_after(PATIENCE_S), contextlib.suppress(ConnectionError):
            self._writer.write(content)
            await self._writer.drain()

    async def flood(self, content: bytes) -> None:
        """The same over and over, until the server breaks off."""
        with anyio.fail_after(PATIENCE_S), contextlib.suppress(ConnectionError):
            while not self._writer.is_closing():
                self._writer.write(content)
                await self._writer.drain()
                await asyncio.sleep(0)

    async def drip(self, content: bytes, within_s: float) -> None:
        """The same at a slow pace, until the server breaks off. Raises TimeoutError when it doesn't."""
        with contextlib.suppress(ConnectionError), anyio.fail_after(within_s):
            while not self._reader.at_eof():
                self._writer.write(content)
                await self._writer.drain()
                await anyio.sleep(0.01)

    def half_close(self) -> None:
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()

    async def answer(self) -> Answer:
        answer = await self.head()
        with anyio.fail_after(PATIENCE_S):
            body = await self._reader.readexactly(int(answer.headers.get("content-length", "0")))
        return replace(answer, body=body)

    async def head(self) -> Answer:
        """An answer that has no body, whatever its head says."""
        with anyio.fail_after(PATIENCE_S):
            first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        return Answer(int(first.split()[1]), headers, b"")

    async def take(self, count: int) -> bytes:
        with anyio.fail_after(PATIENCE_S):
            return await self._reader.readexactly(count)

    async def rest(self) -> bytes:
        """All that still comes until the server closes, in order or not."""
        content = b""
        with anyio.fail_after(PATIENCE_S), contextlib.suppress(ConnectionError):
            while chunk := await self._reader.read(65_536):
                content += chunk
        return content


@asynccontextmanager
async def raw(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[RawClient]:
    """A connection; ``receive_buffer`` in bytes keeps the kernel from reading ahead."""
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: test", *lines, "", ""]).encode()


async def dropped(port: int) -> None:
    """Returns once this process holds no connection that it took on its port."""

    async def look() -> bool:
        return not [
            one
            for one in psutil.Process().net_connections()
            if one.laddr.port == port and one.status != psutil.CONN_LISTEN
        ]

    await eventually(look, within_s=PATIENCE_S)


class SilentClient:
    """A client that doesn't read: not even its library does, which for others reads ahead."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    async def send(self, content: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, content)

    async def rest(self) -> bytes:
        """What its kernel has, and all that still comes. Raises ConnectionResetError when it was cut off."""
        content, loop = b"", asyncio.get_running_loop()
        with anyio.fail_after(PATIENCE_S):
            while chunk := await loop.sock_recv(self._sock, 65_536):
                content += chunk
                self.taken = len(content)
        return content

    #: bytes read before the end, whatever that was
    taken = 0


@asynccontextmanager
async def silent(port: int) -> AsyncIterator[SilentClient]:
    """A connection whose client's kernel holds as little as it can."""
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        yield SilentClient(sock)
