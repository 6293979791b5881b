"""Connection: uvicorn's HTTP protocol with an end to everything a client can leave undone.

uvicorn bounds neither the time nor the size of what a client sends, nor how long it takes to read an
answer; an ASGI app can't close a socket at all. Here each of these ends with a status or a closed socket:

- a head that is slow (408), large or has many fields (431), or isn't HTTP (400); a connection too many (503);
- a body of which too little comes in a while (408; a plain end when the answer has begun);
- an answer of which too little is taken in a while (reset);
- requests behind one that is still being answered: they aren't read, and its connection ends with its answer.

Another protocol that is offered beside a request is ignored.

The kernel holds at most ``2 * KERNEL_BYTES`` of an answer, and this process one event more: a send waits
until all before it is with the kernel.
"""

import asyncio
import fcntl
import socket
import struct
import termios
from dataclasses import dataclass
from typing import Any, Literal, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.settings import Settings
from gateway.web.parsing import RequestParser, plain_head
from gateway.web.patience import Patience
from gateway.web.refusals import HEAD_TOO_LARGE, NOT_HTTP, TOO_MANY, TOO_SLOW, Refusal

_EXTENSION = "gateway.connection"
#: what the kernel may hold of an answer; it can't be recalled. Linux doubles it for its own bookkeeping
KERNEL_BYTES = 64 * 1024
#: as much of a body, or of an answer, has to move within each time limit
_LEAST_BYTES = 64 * 1024
_MOST_FIELDS = 100
#: bytes of framing for each byte of a body; chunks of one byte take five
_MOST_FRAMING = 8
#: by default a process takes so many connections beside its streams
_OTHER_CONNECTIONS = 512
#: how long at most a client may go on sending after it was answered, so that it gets to read the answer
_LINGER_S = 2.0
#: linger on, for no time: closing resets
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """As the settings of the same names; ``connections`` is how many a process takes at once."""

    head_timeout_s: float = 10.0
    head_max_bytes: int = 32_768
    body_timeout_s: float = 30.0
    send_timeout_s: float = 10.0
    connections: int = 768

    @property
    def linger_s(self) -> float:
        """How long a client may go on sending what nobody reads any more."""
        return min(_LINGER_S, self.head_timeout_s, self.body_timeout_s)


class _Unwelcome(Exception):
    """Stops the parser in the middle of what it was given."""


class Connection(HttpToolsProtocol):
    """For ``http=`` of uvicorn.Config; scopes carry it as ``extensions["gateway.connection"]``."""

    limits = ConnectionLimits()
    parser: RequestParser

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base
        super().connection_made(transport)
        self.parser = RequestParser(self, self._read_plainly)
        #: cut off because it took an answer too slowly
        self.too_slow = False
        self._receiving: Literal["head", "body"] | None = "head"
        self._wire_bytes = 0  # of this request, in any form
        self._head_bytes = 0
        self._head_fields = 0
        self._body_bytes = 0
        self._refusal = NOT_HTTP
        self._deaf = False  # what still comes is dropped
        self._half_closed = False
        self._leaves_with_eof = False
        self._reading = Patience(self._body_progress, _LEAST_BYTES, self._read_late)
        self._writing = Patience(lambda: -transport.get_write_buffer_size(), _LEAST_BYTES, self._write_late)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        # A send waits until all before it is with the kernel: one event at most is held here.
        transport.set_write_buffer_limits(high=0)
        self._reading.start(self.limits.head_timeout_s)
        if len(self.connections) > self.limits.connections:
            transport.write(TOO_MANY.response())
            transport.close()

    # -- what the app may ask ------------------------------------------------------------------------

    def abort(self) -> None:
        """Closes at once; what is unsent, here and in the kernel, is dropped."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()
        self._tell_gone()  # an app that ends before the loop comes round has left nothing undone

    def unsent(self) -> int:
        """Bytes that the client's machine hasn't confirmed: those here, and where it tells the kernel's."""
        held = self.transport.get_write_buffer_size()
        raw = self.transport.get_extra_info("socket")
        return held if raw is None or raw.fileno() < 0 else held + _with_kernel(raw.fileno())

    def leave_with_eof(self) -> None:
        """For a stream: a client that shuts its sending side has left, as far as anybody can tell.

        Every other answer still goes out: a client may say all it has to say and wait.
        """
        self._leaves_with_eof = True
        if self._half_closed:
            self.transport.close()

    # -- what the client sends -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        if self._receiving is None:
            if self._is_answering:
                self._ignore_rest()
                return
            self._expect_head()
        self._wire_bytes += len(data)
        super().data_received(data)
        self._follow()

    def _follow(self) -> None:
        """Looks at the size of what has come, and sets the clock of what is still to come."""
        if self._deaf or self.transport.is_closing():
            return
        if self._receiving is not None and self._wire_bytes > self._most_wire_bytes:
            self._refuse(HEAD_TOO_LARGE)
        elif self._receiving is None and self._is_answering:
            self._reading.stop()
        elif self._receiving is None:  # it was answered before all of it had come
            self._expect_head()

    @property
    def _most_wire_bytes(self) -> int:
        """A field of a head, of a trailer or of a chunk that never ends counts nowhere else."""
        head_bytes = self.limits.head_max_bytes
        return head_bytes if self._receiving == "head" else 2 * head_bytes + _MOST_FRAMING * self._body_bytes

    def _body_progress(self) -> int:
        return self._body_bytes if self._is_answering else 0

    def _expect_head(self) -> None:
        self._receiving = "head"
        self._wire_bytes = self._head_bytes = self._head_fields = self._body_bytes = 0
        self._reading.start(self.limits.head_timeout_s)

    def on_message_begin(self) -> None:
        if self._is_answering:
            raise _Unwelcome
        if self._receiving is None:
            self._expect_head()
        super().on_message_begin()
        self._leaves_with_eof = False
        cast("dict[str, Any]", self.scope)["extensions"] = {_EXTENSION: {"connection": self}}

    def on_url(self, url: bytes) -> None:
        self._count(len(url), fields=0)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value), fields=1)
        super().on_header(name, value)

    def _count(self, size: int, *, fields: int) -> None:
        """Also what comes as trailers, behind a body in chunks."""
        self._head_bytes += size
        self._head_fields += fields
        if self._head_bytes > self.limits.head_max_bytes or self._head_fields > _MOST_FIELDS:
            self._refusal = HEAD_TOO_LARGE
            raise _Unwelcome

    def _read_plainly(self, rest: bytes) -> None:
        """Behind a head that offers another protocol: the request begins again without the offer."""
        if self._receiving != "head":  # CONNECT: it is being answered, and what follows is for nobody
            self._ignore_rest()
            return
        head = plain_head(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
        self._head_bytes = self._head_fields = 0
        self.parser = RequestParser(self, self._read_plainly)
        self.parser.feed_data(head + rest)

    def _should_upgrade(self) -> bool:
        return False

    def on_headers_complete(self) -> None:
        if self.parser.offers_another:
            return
        self._receiving = "body"
        super().on_headers_complete()
        self._reading.start(self.limits.body_timeout_s)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._receiving == "head":  # it will begin again
            return
        self._receiving = None
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]  # the base never stays open
        """True keeps the socket open for the answer."""
        self._half_closed = True
        stays = self._is_answering and self._receiving is None and not self._leaves_with_eof
        if stays:
            self.cycle.keep_alive = False
        return stays

    # -- ends ----------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """The parser has given up, or was told to."""
        if self._is_answering and self._receiving is None:
            self._ignore_rest()
        else:
            self._refuse(self._refusal)

    def _ignore_rest(self) -> None:
        """Not even read: whether the client of the running answer leaves must stay to be seen."""
        self._deaf = True
        self._reading.stop()
        self.cycle.keep_alive = False

    def _refuse(self, refusal: Refusal) -> None:
        """Says so, unless an answer has begun, and reads no more."""
        self._deaf = True
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()
            return
        self._tell_gone()
        self.transport.write(refusal.response())
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._reading.start(self.limits.linger_s)

    def _read_late(self) -> None:
        if self.transport.is_closing():
            return
        if self._deaf:
            self.transport.abort()
        elif self._receiving == "head" and self._wire_bytes == 0:
            self.transport.close()
        elif self._receiving == "body" and self._waits_for_us:
            self._reading.start(self.limits.body_timeout_s)
        elif self._receiving == "body" and not self._is_answering:
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    @property
    def _waits_for_us(self) -> bool:
        """The body isn't read yet, or wasn't asked for."""
        return self._is_answering and (self.flow.read_paused or self.cycle.waiting_for_100_continue)

    @property
    def _is_answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and not cycle.disconnected

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._receiving == "body" and not self.transport.is_closing():
            self._reading.start(self.limits.linger_s)

    def timeout_keep_alive_handler(self) -> None:
        """An idle client that hasn't taken its last answer won't."""
        if self.unsent():
            self.abort()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing.start(self.limits.send_timeout_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing.stop()

    def _write_late(self) -> None:
        self.too_slow = True
        self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.stop()
        self._writing.stop()
        super().connection_lost(exc)

    def _tell_gone(self) -> None:
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()


def connection_class(settings: Settings) -> type[Connection]:
    """A Connection with the limits of the settings."""

    class Limited(Connection):
        limits = ConnectionLimits(
            head_timeout_s=settings.head_timeout_s,
            head_max_bytes=settings.head_max_bytes,
            body_timeout_s=settings.body_timeout_s,
            send_timeout_s=settings.send_timeout_s,
            connections=settings.max_connections or settings.sse_sessions + _OTHER_CONNECTIONS,
        )

    return Limited


def connection_of(scope: Scope) -> Connection | None:
    """The one the request came on; None behind another server."""
    extension = scope.get("extensions", {}).get(_EXTENSION, {})
    return cast("Connection | None", extension.get("connection"))


def _with_kernel(descriptor: int) -> int:
    """Bytes in the socket's send queue that aren't acknowledged (SIOCOUTQ, tcp(7)); 0 where it can't tell."""
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4)
    except OSError:
        return 0
    return int(struct.unpack("i", answer)[0])
