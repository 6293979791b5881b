"""What comes from the client: bearer token, bodies, and the moment it goes away."""

from collections.abc import Callable, Collection, Mapping

import anyio
import orjson
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from gateway.answer.fields import check_fields
from gateway.errors import (
    BodyTooLarge,
    GatewayError,
    MalformedBody,
    TokenInvalid,
    TokenMissing,
    UnsupportedContentType,
)


def bearer_token(headers: Headers) -> str:
    """Raises TokenMissing or TokenInvalid; two Authorization headers are as bad as none."""
    values = headers.getlist("authorization")
    if not values:
        raise TokenMissing()
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise TokenInvalid()
    return token.strip()


def require_json(headers: Headers) -> None:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedContentType("send application/json")


def json_object(body: bytes, allowed: Collection[str]) -> Mapping[str, object]:
    """A JSON object with none but the allowed keys. Raises MalformedBody, UnknownField."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MalformedBody("the body is not JSON in UTF-8") from None
    if not isinstance(parsed, dict):
        raise MalformedBody("the body must be a JSON object")
    check_fields(parsed, allowed)
    return parsed


class ClientWatch:
    """Owns ``receive`` of one request from its arrival on: first the body, then the goodbye.

    ``on_gone`` is called once, as soon as the client is gone.
    """

    def __init__(self, receive: Receive, max_bytes: int, on_gone: Callable[[], object]) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._on_gone = on_gone
        self._body = bytearray()
        self._whole = anyio.Event()
        self._gone = anyio.Event()
        self._error: GatewayError | None = None

    async def run(self) -> None:
        """Until the client is gone, or its body is too large to go on reading."""
        more = True
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._error = self._error or MalformedBody("the body ended early")
                self._gone.set()
                self._whole.set()
                self._on_gone()
                return
            if more:
                self._body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(self._body) > self._max_bytes:
                    self._error = BodyTooLarge(f"at most {self._max_bytes} bytes are accepted")
                    self._whole.set()
                    return
                if not more:
                    self._whole.set()

    async def body(self) -> bytes:
        """The whole body. Raises BodyTooLarge; MalformedBody when the client left in its middle."""
        await self._whole.wait()
        if self._error is not None:
            raise self._error
        return bytes(self._body)

    async def disconnected(self) -> Message:
        """A ``receive`` for the response: says nothing but the goodbye."""
        await self._gone.wait()
        return {"type": "http.disconnect"}


class FormEnd:
    """Passes a multipart body through and keeps its last bytes.

    The parser takes a form that was cut off for a whole one; what is missing may be a deny list.
    """

    def __init__(self, headers: Headers, receive: Receive) -> None:
        """Raises UnsupportedContentType, MalformedBody for a boundary or charset that can't be used."""
        kind, options = parse_options_header(headers.get("content-type"))
        if kind != b"multipart/form-data":
            raise UnsupportedContentType("send multipart/form-data")
        boundary = options.get(b"boundary", b"")
        if not boundary or options.get(b"charset", b"utf-8").lower() != b"utf-8":
            raise MalformedBody("a form needs a boundary, and UTF-8")
        self._receive = receive
        self._end = b"--" + boundary + b"--"
        self._tail = b""

    async def receive(self) -> Message:
        message = await self._receive()
        kept = len(self._end) + 2
        self._tail = (self._tail + message.get("body", b"")[-kept:])[-kept:]
        return message

    def check(self) -> None:
        """Raises MalformedBody unless the body ended with the closing boundary."""
        if not self._tail.removesuffix(b"\r\n").endswith(self._end):
            raise MalformedBody("the form is not whole: its closing boundary is missing")


def bounded(receive: Receive, max_bytes: int) -> Receive:
    """The same ``receive``, raising BodyTooLarge once more than ``max_bytes`` came through."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedBody("the body ended early")
        seen += len(message.get("body", b""))
        if seen > max_bytes:
            raise BodyTooLarge(f"at most {max_bytes} bytes are accepted")
        return message

    return counted
