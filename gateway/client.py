"""A typed client of the HTTP API, as the command line uses it."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from gateway.errors import GatewayError

_CONNECT_S = 5.0
_READ_S = 120.0
_ACK_S = 2.0
_LAST_EVENTS = frozenset({"done", "error", "revoked"})


class ApiError(GatewayError):
    """The server answered with a problem; ``code`` and ``detail`` are the server's own."""

    def __init__(self, status: int, code: str, title: str, detail: str) -> None:
        super().__init__(detail or title)
        self.status = status
        self.problem_code = code


class ServerUnreachable(GatewayError):
    code = "server_unreachable"
    title = "The gateway does not answer"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of an answer: its name, sequence number and JSON object."""

    name: str
    sequence: int
    data: Mapping[str, Any]


class EventReader:
    """Reassembles server-sent events from bytes, however they were split (sans-IO)."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, content: bytes) -> Iterator[StreamEvent]:
        self._buffer += content
        while b"\n\n" in self._buffer:
            block, self._buffer = self._buffer.split(b"\n\n", 1)
            event = _event(block)
            if event is not None:
                yield event


def _event(block: bytes) -> StreamEvent | None:
    fields: dict[bytes, bytes] = {}
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name:
            fields[name] = value.removeprefix(b" ")
    if b"data" not in fields:
        return None
    return StreamEvent(
        fields.get(b"event", b"message").decode(),
        int(fields.get(b"id", b"0")),
        json.loads(fields[b"data"]),
    )


class GatewayClient:
    """Blocking calls. Every method raises ApiError or ServerUnreachable."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx2.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(_READ_S, connect=_CONNECT_S),
            trust_env=False,
        )

    def __enter__(self) -> "GatewayClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def ask(
        self, question: str, *, knowledge_base: str | None = None, conversation: str | None = None
    ) -> Iterator[StreamEvent]:
        """The events of one answer, as they arrive. Leaving the iteration stops the answer; having seen its
        end is told to the server.
        """
        body = {
            "question": question,
            "knowledge_base": knowledge_base,
            "conversation_id": conversation,
        }
        reader, ended = EventReader(), False
        try:
            with self._http.stream("POST", "/v1/answers", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise _problem(response)
                for content in response.iter_bytes():
                    for event in reader.feed(content):
                        ended = ended or event.name in _LAST_EVENTS
                        yield event
        except httpx2.HTTPError as error:
            raise ServerUnreachable(f"{self._http.base_url} does not answer") from error
        if ended:
            self._acknowledge(response.headers.get("X-Request-Id", ""))

    def _acknowledge(self, request_id: str) -> None:
        """A measurement for the server; what becomes of it is of no concern to who asked."""
        with contextlib.suppress(httpx2.HTTPError):
            self._http.post(f"/v1/answers/{request_id}/ack", json={}, timeout=_ACK_S)

    def search(self, query: str, **fields: str | int | None) -> dict[str, Any]:
        given = {name: value for name, value in fields.items() if value is not None}
        return self._json("GET", "/v1/search", params={"query": query, **given})

    def upload(
        self, files: Sequence[tuple[str, Path | bytes]], fields: Mapping[str, str | list[str]]
    ) -> dict[str, Any]:
        """Uploads ``(source, path or content)`` pairs as one task."""
        parts = [
            ("file", (source, content if isinstance(content, bytes) else content.read_bytes()))
            for source, content in files
        ]
        return self._json("POST", "/v1/documents", data=dict(fields), files=parts)

    def task(self, task_id: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/tasks/{task_id}")

    def releases(self, knowledge_base: str) -> list[dict[str, Any]]:
        answer = self._json("GET", "/v1/releases", params={"knowledge_base": knowledge_base})
        releases: list[dict[str, Any]] = answer["releases"]
        return releases

    def build_release(self, knowledge_base: str) -> dict[str, Any]:
        return self._json("POST", "/v1/releases", json={"knowledge_base": knowledge_base})

    def activate(self, release_id: str, expected_sequence: int | None = None) -> dict[str, Any]:
        body = {} if expected_sequence is None else {"expected_sequence": expected_sequence}
        return self._json("POST", f"/v1/releases/{release_id}/activate", json=body)

    def roll_back(self, knowledge_base: str, expected_sequence: int | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"knowledge_base": knowledge_base}
        if expected_sequence is not None:
            body["expected_sequence"] = expected_sequence
        return self._json("POST", "/v1/releases/rollback", json=body)

    def revoke(self, kind: str, subject: str, reason: str) -> dict[str, Any]:
        body = {"kind": kind, "id": subject, "reason": reason}
        return self._json("POST", "/v1/revocations", json=body)

    def create_api_key(
        self, name: str, *, scopes: Sequence[str], groups: Sequence[str] = (), ttl_s: int | None = None
    ) -> dict[str, Any]:
        """The answer's ``api_key`` is the credential; the server can't tell it again."""
        body = {"name": name, "scopes": list(scopes), "groups": list(groups), "ttl_s": ttl_s}
        return self._json("POST", "/v1/apikeys", json=body)

    def api_keys(self) -> list[dict[str, Any]]:
        keys: list[dict[str, Any]] = self._json("GET", "/v1/apikeys")["api_keys"]
        return keys

    def revoke_api_key(self, key_id: str) -> dict[str, Any]:
        return self._json("DELETE", f"/v1/apikeys/{key_id}")

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx2.HTTPError as error:
            raise ServerUnreachable(f"{self._http.base_url} does not answer") from error
        answer = _object(response)
        if response.is_error or answer is None:
            raise _problem(response)
        return answer


def _object(response: httpx2.Response) -> dict[str, Any] | None:
    """The JSON object of a body; None when it is anything else, as from a proxy in front."""
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _problem(response: httpx2.Response) -> ApiError:
    body = _object(response) or {}
    return ApiError(
        response.status_code,
        str(body.get("code", "unknown")),
        str(body.get("title", f"HTTP {response.status_code}")),
        str(body.get("detail", "")),
    )
