"""The floor to compare with: an ASGI app that forwards a model's bytes as they come, and nothing else.

``python -m loadtest.bare_forwarder --upstream URL --port 0 --ready-file F``. Served as the gateway is:
the same uvicorn settings, the same protocol class, the same event loop.
"""

import argparse
import asyncio
import json
import os
import socket
from pathlib import Path

import aiohttp
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.web.connection import Connection

_KEEP_ALIVE_S = 5
_MAX_CONNECTIONS = 1000
_HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]


class BareForwarder:
    """aiohttp in, raw ``send`` out; no limits, no errors, but it stops when the client leaves."""

    def __init__(self, upstream: str, ready_file: Path, base_url: str) -> None:
        self._upstream = upstream
        self._ready_file = ready_file
        self._base_url = base_url
        self._http: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._forward(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout()
        ) as self._http:
            await send({"type": "lifespan.startup.complete"})
            # the socket listens already: whoever connects now is served as soon as uvicorn accepts
            _write_ready(self._ready_file, self._base_url)
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _forward(self, receive: Receive, send: Send) -> None:
        assert self._http is not None
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        watch = asyncio.create_task(_cancel_when_gone(receive, asyncio.current_task()))
        try:
            await self._stream(self._http, body, send)
        except asyncio.CancelledError:
            return
        finally:
            watch.cancel()

    async def _stream(self, http: aiohttp.ClientSession, body: bytes, send: Send) -> None:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        async with http.post(self._upstream, data=body, headers=headers) as answer:
            await send({"type": "http.response.start", "status": answer.status, "headers": _HEADERS})
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_when_gone(receive: Receive, answering: "asyncio.Task[object] | None") -> None:
    await receive()
    if answering is not None:
        answering.cancel()


def _write_ready(ready_file: Path, base_url: str) -> None:
    draft = ready_file.with_name(f"{ready_file.name}.part")
    draft.write_text(json.dumps({"base_url": base_url, "pid": os.getpid()}))
    draft.replace(ready_file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--upstream", required=True, help="the URL that every request is posted to")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", options.port), backlog=1024) as listener:
        app = BareForwarder(
            options.upstream, options.ready_file, f"http://127.0.0.1:{listener.getsockname()[1]}"
        )
        config = uvicorn.Config(
            app,
            http=Connection,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
