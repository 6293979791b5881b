"""Every door of the HTTP API: what it takes to knock properly, for tests that knock wrongly."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.routing import Route

from gateway.web.routing import Methods, routes

JSON = "application/json"
BOUNDARY = "b0undary"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"

#: paths that anybody may read
OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/"})


@dataclass(frozen=True)
class Door:
    """One method of one path. ``body`` is a good one; ``{…}`` in the path or the body stands for an id."""

    method: str
    path: str
    scope: str
    body: bytes = b""
    content_type: str | None = None
    #: other scopes that open it as well
    or_scopes: tuple[str, ...] = ()

    @property
    def scopes(self) -> frozenset[str]:
        """Each of them opens it."""
        return frozenset({self.scope, *self.or_scopes})

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.content_type is None else {"Content-Type": self.content_type}

    def at(self, name: str) -> str:
        """The path with ``name`` in the place of its id."""
        start, _, rest = self.path.partition("{")
        return start + name + rest.partition("}")[2] if rest else self.path

    @property
    def takes_an_id(self) -> bool:
        return "{" in self.path

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def json_body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def multipart(
    parts: Sequence[tuple[str, bytes | str] | tuple[str, bytes | str, str]], *, close: bool = True
) -> bytes:
    """Parts are ``(name, value)`` fields and ``(name, content, file name)`` files."""
    lines = []
    for name, value, *filename in parts:
        file = f'; filename="{filename[0]}"' if filename else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
        content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        lines.append(head.encode() + content + b"\r\n")
    return b"".join(lines) + (f"--{BOUNDARY}--\r\n".encode() if close else b"")


def upload_body(
    fields: Mapping[str, str | list[str]] | None = None,
    *,
    name: str = "note.md",
    content: bytes = b"# Note\n\nThe door code of the archive is 7421.\n",
    knowledge_base: str = "handbook",
) -> bytes:
    """A good upload, with ``fields`` on top."""
    given: dict[str, str | list[str]] = {"knowledge_base": knowledge_base, "allow": "group:staff"}
    given |= fields or {}
    parts: list[tuple[str, bytes | str] | tuple[str, bytes | str, str]] = [("file", content, name)]
    for field, value in given.items():
        parts += [(field, one) for one in ([value] if isinstance(value, str) else value)]
    return multipart(parts)


DOORS = [
    Door("POST", "/v1/answers", "ask", json_body(question="What is the limit?"), JSON),
    Door("DELETE", "/v1/answers/{request_id}", "ask"),
    Door("GET", "/v1/search?query=limit", "ask"),
    Door("GET", "/v1/sources/{chunk_id}", "ask"),
    Door(
        "POST", "/v1/explain", "ask", json_body(question="What is the limit?"), JSON, or_scopes=("operate",)
    ),
    Door("DELETE", "/v1/traces", "ask", or_scopes=("operate",)),
    Door("POST", "/v1/documents", "ingest", upload_body(), MULTIPART),
    Door("GET", "/v1/documents?knowledge_base=handbook", "ingest", or_scopes=("release",)),
    Door("GET", "/v1/documents/{document_id}", "ingest", or_scopes=("release",)),
    Door("DELETE", "/v1/documents/{document_id}", "ingest"),
    Door("GET", "/v1/tasks/{task_id}", "ingest", or_scopes=("release", "revoke")),
    Door("DELETE", "/v1/tasks/{task_id}", "ingest", or_scopes=("release",)),
    Door("GET", "/v1/releases?knowledge_base=handbook", "release"),
    Door("POST", "/v1/releases", "release", json_body(knowledge_base="handbook"), JSON),
    Door("POST", "/v1/releases/rollback", "release", json_body(knowledge_base="handbook"), JSON),
    Door("POST", "/v1/releases/{release_id}/activate", "release", b"{}", JSON),
    Door("GET", "/v1/releases/{release_id}/diff", "release"),
    Door("GET", "/v1/knowledge-bases", "release"),
    Door("GET", "/v1/revocations", "revoke"),
    Door("POST", "/v1/revocations", "revoke", json_body(kind="user", id="mallory", reason="left"), JSON),
    Door("POST", "/v1/revocations/{revocation_id}/lift", "revoke"),
    Door("GET", "/v1/sessions", "operate"),
    Door("DELETE", "/v1/sessions/{request_id}", "operate"),
    Door("GET", "/v1/apikeys", "operate"),
    Door("POST", "/v1/apikeys", "operate", json_body(name="ci", scopes=["ask"]), JSON),
    Door("DELETE", "/v1/apikeys/{key_id}", "operate"),
    Door("POST", "/v1/answers/{request_id}/ack", "ask", json_body(), JSON),
    Door("PUT", "/v1/documents/{document_id}/acl", "ingest", json_body(allow=["group:staff"]), JSON),
    Door(
        "POST",
        "/v1/documents/{document_id}/approval",
        "release",
        json_body(document_version=1, decision="approve"),
        JSON,
    ),
    Door("GET", "/v1/tasks", "ingest", or_scopes=("release",)),
    Door("GET", "/v1/tasks/{task_id}/events", "ingest", or_scopes=("release", "revoke")),
]


def door(method: str, path: str) -> Door:
    """The one of this method and path; a query doesn't count."""
    (found,) = [one for one in DOORS if (one.method, one.path.partition("?")[0]) == (method, path)]
    return found


def all_routes() -> set[tuple[str, str]]:
    """``(method, path)`` of everything that is served, HEAD and OPTIONS left out."""
    return {
        (method, route.path)
        for route in routes()
        if isinstance(route, Route) and isinstance(route.endpoint, Methods)
        for method in route.endpoint.names - {"HEAD", "OPTIONS"}
    }
