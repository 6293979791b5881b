"""A small HTTP/1.1 server that can do on purpose what others do by accident: reset, cut, split."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import httptools

Application = Callable[["Exchange"], Awaitable[None]]


class Gone(Exception):
    """The client has left; nothing more can be written."""


class Exchange:
    """One request and the way to answer it. The task that answers is cancelled when the client leaves,
    unless it set ``ignore_close``; ``on_gone`` is called first, in any case.
    """

    def __init__(self, connection: "_Connection", method: str, target: str, headers: dict[str, str]) -> None:
        self._connection = connection
        self.method = method
        self.target = target
        self.headers = headers
        self.body = b""
        self.ignore_close = False
        self.on_gone: Callable[[], None] = lambda: None
        self._chunked = False
        self.answered = False

    def start(self, status: int, headers: dict[str, str], *, length: int | None = None) -> None:
        """Sends the head; without a length the body is chunked."""
        self._chunked = length is None
        head = {**headers, "transfer-encoding": "chunked"} if self._chunked else dict(headers)
        if length is not None:
            head["content-length"] = str(length)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{k}: {v}" for k, v in head.items())]
        self._connection.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def write(self, data: bytes) -> None:
        """Raises Gone when the client has left and the exchange isn't deaf to that."""
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._connection.write(data)
        await self._connection.drain()

    def end(self) -> None:
        if self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self.answered = True

    def reset(self) -> None:
        """Closes with RST instead of FIN."""
        self._connection.reset()

    def answer_json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        payload = json.dumps(body).encode()
        self.start(status, {"content-type": "application/json", **(headers or {})}, length=len(payload))
        self._connection.write(payload)
        self.end()


class _Connection(asyncio.Protocol):
    def __init__(self, application: Application, open_ones: "set[_Connection]") -> None:
        self._application = application
        self._open_ones = open_ones
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._task is not None:
            self._transport.abort()  # pipelining: none of our clients does it
            return
        exchange = Exchange(self, self._parser.get_method().decode(), self._target.decode(), self._headers)
        exchange.body = b"".join(self._body)
        self._target, self._headers = b"", {}
        self._body.clear()
        self._exchange = exchange
        keep_alive = self._parser.should_keep_alive()
        self._task = asyncio.get_running_loop().create_task(self._serve(exchange, keep_alive))

    async def _serve(self, exchange: Exchange, keep_alive: bool) -> None:
        try:
            await self._application(exchange)
        except Gone:
            pass
        finally:
            self._task = self._exchange = None
            if not exchange.answered:
                self._transport.abort()
            elif not keep_alive:
                self._transport.close()

    def eof_received(self) -> bool:
        self._left()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()
        self._open_ones.discard(self)

    def _left(self) -> None:
        if self._lost:
            return
        self._lost = True
        self._writable.set()
        if self._exchange is not None and self._task is not None:
            self._exchange.on_gone()
            if not self._exchange.ignore_close:
                self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)
        elif self._exchange is None or not self._exchange.ignore_close:
            raise Gone

    async def drain(self) -> None:
        if self._transport.is_closing():
            await asyncio.sleep(0)  # whoever writes on and on must hear that it is lost
        await self._writable.wait()

    def reset(self) -> None:
        raw: socket.socket = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def stop(self) -> None:
        task = self._task
        self._transport.abort()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


class StubServer:
    """Listens on loopback; ``close`` ends every connection and its task. ``accepted`` counts connections."""

    def __init__(self, server: asyncio.Server, open_ones: set[_Connection]) -> None:
        self._server = server
        self._open_ones = open_ones
        self.accepted = 0

    @classmethod
    async def listen(cls, application: Application, port: int = 0) -> "StubServer":
        open_ones: set[_Connection] = set()
        loop = asyncio.get_running_loop()

        def accept() -> _Connection:
            stub.accepted += 1
            return _Connection(application, open_ones)

        stub = cls(await loop.create_server(accept, "127.0.0.1", port, backlog=1024), open_ones)
        return stub

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        for connection in list(self._open_ones):
            await connection.stop()
