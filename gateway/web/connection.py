"""Connection: uvicorn's HTTP protocol, with little in its buffers and a way for the app to cut it off.

An ASGI app can't close a socket: when it returns early the server closes, which waits for a flush that
never comes while the client doesn't read. ``abort`` in the scope is the way out.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_EXTENSION = "gateway.abort"
#: what the kernel may hold of an answer; it can't be recalled. Linux doubles it for its own bookkeeping
_KERNEL_BYTES = 64 * 1024
#: linger on, for no time: closing resets
_RESET = struct.pack("ii", 1, 0)


class Connection(HttpToolsProtocol):
    """For ``http=`` of uvicorn.Config. Scopes carry ``extensions["gateway.abort"]["abort"]``."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        # A send waits until all before it is with the kernel: one event at most is held here.
        transport.set_write_buffer_limits(high=0)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {_EXTENSION: {"abort": self.abort}}

    def abort(self) -> None:
        """Closes at once; what is unsent, here and in the kernel, is dropped."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None and not self.transport.is_closing():
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()


def abort_of(scope: Scope) -> Callable[[], None] | None:
    """Drops the request's connection with all that is unsent; None behind another server."""
    extension = scope.get("extensions", {}).get(_EXTENSION, {})
    return cast("Callable[[], None] | None", extension.get("abort"))
