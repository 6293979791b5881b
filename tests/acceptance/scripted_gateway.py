"""A server that plays every ending of a stream to the chat page, from scripts keyed by the question."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn

STATIC = Path(__file__).parents[2] / "gateway" / "web" / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
TOKEN = "test-token"
QUOTE = "Employees receive 25 days of paid leave a year."
HOSTILE = "<img src=x onerror=window.broken=1></script><script>window.broken=1</script>"

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def event(name: str, data: dict[str, Any], end: str = "\n") -> bytes:
    body = json.dumps(data, ensure_ascii=False)
    return f"event: {name}{end}id: 1{end}data: {body}{end}{end}".encode()


def source(n: int, title: str = "Leave policy", **more: Any) -> dict[str, Any]:
    place = {"section": "Leave > Annual", "page": 3, "uri": "handbook/leave.md", "document_version": "v7"}
    return {"n": n, "document_id": f"d{n}", "title": title, "score": 0.4, **place, **more}


def meta(*sources: dict[str, Any]) -> bytes:
    names = {"knowledge_base": "handbook", "knowledge_revision": "0123456789abcdef"}
    return event("meta", {"request_id": "req-1", "sources": sources, "cached": False, **names})


def delta(text: str) -> bytes:
    return event("delta", {"text": text})


def done(*citations: dict[str, Any], **more: Any) -> bytes:
    timings = {"retrieval_ms": 21, "ttft_ms": 140, "total_ms": 2300}
    body = {"status": "ANSWERED", "reasons": [], "citations": citations, "timings": timings, **more}
    return event("done", body)


ANSWER = (
    meta(source(1, chunk_id="c1"), source(2, "Travel rules", chunk_id="gone"), source(3, "Old rules")),
    delta("You get **25 days** of leave [1].\n\n| Kind | Days |\n|---|---|\n| Annual | 25 |\n\n"),
    delta("```\nx = [1]\n```\n\nTravel days count too [2, 3] and [1][2]."),
    done(source(1, quote=QUOTE, supported=True), source(2, "Travel rules", quote="Q2", supported=False)),
)
CRLF = b": heartbeat\r\n\r\n" + b"".join(ANSWER).replace(b"\n", b"\r\n")
REVOKED = event("revoked", {"reason": "document", "revoked_at": "2026-01-01T00:00:00Z", "partial": True})
FAILED = event("error", {"code": "upstream_failed", "title": "t", "detail": "The model went away."})
REFUSED = done(status="REFUSED_NO_EVIDENCE", reasons=["BELOW_THRESHOLD"])

#: a piece that isn't sent: the stream waits here until the test lets it go on
GATE = b"gate"
#: question -> what the stream sends; None at the end holds it open until the client leaves
STREAMS: dict[str, tuple[bytes | None, ...]] = {
    "answer": ANSWER,
    "crlf": tuple(CRLF[i : i + 7] for i in range(0, len(CRLF), 7)),
    "refusal": (meta(source(1)), REFUSED),
    "error": (meta(source(1)), delta("The first half"), FAILED),
    "revoked": (meta(source(1, chunk_id="c1")), delta("A secret sentence [1]."), GATE, REVOKED),
    "truncated": (meta(source(1)), delta("The first half")),
    "endless": (meta(source(1)), delta("It goes on and on"), None),
    "silent": (None,),
    "hostile": (
        meta(source(1, HOSTILE)),
        delta(f"{HOSTILE} `{HOSTILE}` [1] [99] [x](javascript:alert(1)) ![i](http://example.invalid/i.png)"),
        done(source(1, HOSTILE, quote=HOSTILE, uri="javascript:alert(1)", supported=True)),
    ),
    "chinese": (
        meta(source(1, "休假制度")),
        delta("员工每年有25天带薪年假【1】。"),
        done(source(1, "休假制度")),
    ),
}
PROBLEMS: dict[str, tuple[int, str]] = {
    "forbidden": (403, "scope_missing"),
    "missing": (404, "knowledge_base_not_found"),
    "long": (413, "body_too_large"),
    "hurried": (429, "rate_limited"),
    "full": (503, "overloaded"),
    "slow": (504, "deadline_exceeded"),
}


class ScriptedGateway:
    """An ASGI app with the page, scripted streams, and events that say what the page did."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.withdrawn: list[str] = []
        self.arrived = anyio.Event()
        self.go_on = anyio.Event()
        self.left = anyio.Event()
        self.deleted = anyio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("POST", "/v1/answers"):
            await self._answer(scope, receive, send)
        elif method == "DELETE":
            self.withdrawn.append(path)
            self.deleted.set()
            await reply(send, 202, b"{}")
        elif path == "/v1/sources/c1":
            content = f"Section 4. {QUOTE} They may carry over five."
            await reply(send, 200, json.dumps({"chunk_id": "c1", "content": content}).encode())
        elif path.startswith("/v1/"):
            await problem(send, 404, "not_found")
        else:
            await page_file(send, "index.html" if path == "/" else path.removeprefix("/static/"))

    async def _answer(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = json.loads(await body_of(receive))
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.asked.append(body)
        self.headers.append(headers)
        question = body["question"]
        if headers.get("authorization") != f"Bearer {TOKEN}":
            await problem(send, 401, "token_invalid")
        elif question in PROBLEMS:
            await problem(send, *PROBLEMS[question])
        elif question == "which" and "knowledge_base" not in body:
            await problem(send, 400, "knowledge_base_required", knowledge_bases=["handbook", "travel"])
        else:
            await self._stream(STREAMS["answer" if question == "which" else question], receive, send)

    async def _stream(self, pieces: tuple[bytes | None, ...], receive: Receive, send: Send) -> None:
        if pieces[0] is not None:
            await start(send, 200, "text/event-stream", [(b"x-request-id", b"req-1")])
        self.arrived.set()
        for piece in pieces:
            if piece is None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.left.set()
                return
            if piece is GATE:
                await self.go_on.wait()
            else:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def body_of(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def start(send: Send, status: int, kind: str, more: list[tuple[bytes, bytes]] | None = None) -> None:
    fixed = [(b"content-type", kind.encode()), (b"cache-control", b"no-store"), (b"retry-after", b"7")]
    csp = [(b"content-security-policy", CSP.encode()), (b"x-content-type-options", b"nosniff")]
    headers = [*fixed, *csp, *(more or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def reply(send: Send, status: int, body: bytes, kind: str = "application/json") -> None:
    await start(send, status, kind)
    await send({"type": "http.response.body", "body": body})


async def problem(send: Send, status: int, code: str, **more: Any) -> None:
    body = {"status": status, "code": code, "title": "T", "detail": f"detail of {code}", **more}
    await reply(send, status, json.dumps(body).encode(), "application/problem+json")


async def page_file(send: Send, name: str) -> None:
    file = STATIC / name
    if file.parent == STATIC and file.is_file():
        await reply(send, 200, file.read_bytes(), TYPES[file.suffix])
    else:
        await problem(send, 404, "not_found")


class QuietServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to pytest."""
        yield


@asynccontextmanager
async def serving(app: ScriptedGateway) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
        config.timeout_graceful_shutdown = 1
        server = QuietServer(config)
        serve = asyncio.create_task(server.serve([listener]))
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        await serve
