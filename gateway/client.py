"""A typed client of the HTTP API, as the command line uses it."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

    def __init__(
        self, status: int, code: str, title: str, detail: str, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(detail or title, retry_after_ms=retry_after_ms)
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


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """One file of an upload; ``source`` becomes the document's name."""

    source: str
    content: bytes
    media_type: str


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

    def __init__(self, url: str, token: str, *, transport: httpx2.BaseTransport | None = None) -> None:
        self._http = httpx2.Client(
            base_url=url,
            transport=transport,
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
        self,
        question: str,
        *,
        knowledge_base: str | None = None,
        conversation: str | None = None,
        fresh: bool = False,
    ) -> Iterator[StreamEvent]:
        """The events of one answer, as they arrive. Leaving the iteration stops the answer; having seen its
        end is told to the server. ``fresh``: made for this asker alone, neither kept nor shared.
        """
        body = {
            "question": question,
            "knowledge_base": knowledge_base,
            "conversation_id": conversation,
        }
        headers = {"Cache-Control": "no-store"} if fresh else {}
        reader, ended = EventReader(), False
        try:
            with self._http.stream("POST", "/v1/answers", json=body, headers=headers) as response:
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

    def explain(self, trace_id: str) -> dict[str, Any]:
        """What was found in a recorded search or answer, why that was or wasn't enough, and its times."""
        return self._json("POST", "/v1/explain", json={"trace_id": trace_id})

    def upload(
        self,
        files: Sequence[UploadedFile],
        fields: Mapping[str, str | list[str]],
        *,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Uploads the files as one task. The same key with the same files and fields is the same upload."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        parts = [("file", (file.source, file.content, file.media_type)) for file in files]
        return self._json("POST", "/v1/documents", data=dict(fields), files=parts, headers=headers)

    def documents(self, knowledge_base: str) -> dict[str, Any]:
        """``documents``: all live ones, by source, none for a knowledge base that doesn't exist; ``limits``:
        how many bytes one may have.
        """
        pages = list(self._pages("/v1/documents", knowledge_base=knowledge_base))
        documents = [document for page in pages for document in page["documents"]]
        return {**pages[0], "documents": documents, "next_cursor": None}

    def document(self, document_id: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/documents/{document_id}")

    def delete_document(self, document_id: str) -> str | None:
        """The id of the task that cleans up after it; None when there is none."""
        response = self._sent("DELETE", f"/v1/documents/{document_id}")
        return response.headers.get("Location", "").rpartition("/")[2] or None

    def set_acl(self, document_id: str, allow: Sequence[str], deny: Sequence[str] = ()) -> dict[str, Any]:
        """In force at once; ``task_id`` of the answer moves stored passages, None when none have to."""
        body = {"allow": list(allow), "deny": list(deny)}
        return self._json("PUT", f"/v1/documents/{document_id}/acl", json=body)

    def judge(self, document_id: str, version: int, decision: str, note: str | None = None) -> dict[str, Any]:
        """``decision``: approve or reject."""
        body = {"document_version": version, "decision": decision, "note": note}
        return self._json("POST", f"/v1/documents/{document_id}/approval", json=body)

    def task(self, task_id: str) -> dict[str, Any]:
        return self._json("GET", f"/v1/tasks/{task_id}")

    def tasks(self, **fields: str | int | None) -> list[dict[str, Any]]:
        """Newest first; ``fields`` are knowledge_base, state, kind, limit and before."""
        given = {name: value for name, value in fields.items() if value is not None}
        tasks: list[dict[str, Any]] = self._json("GET", "/v1/tasks", params=given)["tasks"]
        return tasks

    def task_events(self, task_id: str) -> Iterator[StreamEvent]:
        """``progress`` with the task as it changes, then one last event: ``ended`` with it, ``revoked`` or
        ``error``.
        """
        reader = EventReader()
        try:
            with self._http.stream("GET", f"/v1/tasks/{task_id}/events") as response:
                if response.status_code != 200:
                    response.read()
                    raise _problem(response)
                for content in response.iter_bytes():
                    yield from reader.feed(content)
        except httpx2.HTTPError as error:
            raise ServerUnreachable(f"{self._http.base_url} does not answer") from error

    def cancel_task(self, task_id: str) -> None:
        """Returns once the wish is noted; the task ends at its next step."""
        self._sent("DELETE", f"/v1/tasks/{task_id}")

    def releases(self, knowledge_base: str) -> list[dict[str, Any]]:
        """All of them, newest first."""
        pages = self._pages("/v1/releases", knowledge_base=knowledge_base)
        return [release for page in pages for release in page["releases"]]

    def knowledge_bases(self) -> list[dict[str, Any]]:
        """All of the tenant's, by name, each with its active release's id, sequence and embedding space."""
        found: list[dict[str, Any]] = self._json("GET", "/v1/knowledge-bases")["knowledge_bases"]
        return found

    def build_release(self, knowledge_base: str) -> dict[str, Any]:
        return self._json("POST", "/v1/releases", json={"knowledge_base": knowledge_base})

    def activate(self, release_id: str, expected_sequence: int | None = None) -> dict[str, Any]:
        body = {} if expected_sequence is None else {"expected_sequence": expected_sequence}
        return self._json("POST", f"/v1/releases/{release_id}/activate", json=body)

    def roll_back(
        self, knowledge_base: str, expected_sequence: int | None = None, *, what: str = "release"
    ) -> dict[str, Any]:
        """``what``: ``release``; ``config`` or ``model``: the retrieval config or model adapter alone."""
        body: dict[str, Any] = {"knowledge_base": knowledge_base, "what": what}
        if expected_sequence is not None:
            body["expected_sequence"] = expected_sequence
        return self._json("POST", "/v1/releases/rollback", json=body)

    def diff_releases(self, release_id: str, against: str | None = None) -> dict[str, Any]:
        """What differs from ``against``, by default from the active release."""
        params = {} if against is None else {"against": against}
        return self._json("GET", f"/v1/releases/{release_id}/diff", params=params)

    def revoke(self, kind: str, subject: str, reason: str) -> dict[str, Any]:
        body = {"kind": kind, "id": subject, "reason": reason}
        return self._json("POST", "/v1/revocations", json=body)

    def revocations(self) -> list[dict[str, Any]]:
        """All of the tenant's, newest first, lifted ones too."""
        pages = self._pages("/v1/revocations")
        return [revocation for page in pages for revocation in page["revocations"]]

    def lift(self, revocation_id: str) -> dict[str, Any]:
        return self._json("POST", f"/v1/revocations/{revocation_id}/lift")

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

    def _pages(self, path: str, **params: str) -> Iterator[dict[str, Any]]:
        while True:
            page = self._json("GET", path, params=params)
            yield page
            if page.get("next_cursor") is None:
                return
            params = {**params, "cursor": page["next_cursor"]}

    def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        response = self._sent(method, path, **arguments)
        answer = _object(response)
        if answer is None:
            raise _problem(response)
        return answer

    def _sent(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        try:
            response = self._http.request(method, path, **arguments)
        except httpx2.HTTPError as error:
            raise ServerUnreachable(f"{self._http.base_url} does not answer") from error
        if response.is_error:
            raise _problem(response)
        return response


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
        _retry_after_ms(response.headers.get("Retry-After", "")),
    )


def _retry_after_ms(header: str) -> int | None:
    """Only in its form of seconds: the gateway sends no date."""
    return int(header) * 1000 if header.isascii() and header.isdigit() and len(header) < 9 else None
