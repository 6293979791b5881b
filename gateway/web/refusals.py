"""Refusals: what a connection says to requests that never reach the app, as problem+json."""

from dataclasses import dataclass

import orjson


@dataclass(frozen=True, slots=True)
class Refusal:
    status: bytes
    code: str
    title: str

    def response(self) -> bytes:
        """A whole problem+json answer, the last one of its connection."""
        status = int(self.status[:3])
        body = orjson.dumps({"type": "about:blank", "title": self.title, "status": status, "code": self.code})
        retry = b"retry-after: 1\r\n" if status == 503 else b""
        return (
            b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"cache-control: no-store\r\n%bconnection: close\r\n\r\n%b"
        ) % (self.status, len(body), retry, body)


NOT_HTTP = Refusal(b"400 Bad Request", "malformed_request", "This is not a request of HTTP/1.1")
TOO_SLOW = Refusal(b"408 Request Timeout", "request_too_slow", "The request did not come in time")
HEAD_TOO_LARGE = Refusal(
    b"431 Request Header Fields Too Large", "head_too_large", "The head of the request is larger than allowed"
)
TOO_MANY = Refusal(b"503 Service Unavailable", "overloaded", "All connections are taken")
