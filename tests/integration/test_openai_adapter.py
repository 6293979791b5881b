"""The chat adapter against the scripted model server, over real sockets."""

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import psutil
import pytest

from gateway.adapters.openai.model import OpenAIModel
from gateway.answer.model import AnswerModel, ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import Message, Prompt
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, UpstreamFailed
from loadtest.model_stub import ModelStub, serve_stub

SECRET = "sk-very-secret"
PROMPT = Prompt("q", (), (Message("system", "rules"), Message("user", "the question 退款")), 64, "en")
LONG_MS = 60_000
TEXTS = [
    "退款",
    "需要\r\n七天",
    "。\r",
    "\n",
    "😀👨‍👩‍👧",
    "\u2028 \x0b\x85 \\ud83d",
    '"}\n\ndata: [DONE]\n\n',
    "end",
]


#: calls that were left, held so that only leaving can have closed them
KEPT: list[object] = []
T = TypeVar("T")


@pytest.fixture(autouse=True)
def _without_gc() -> Iterator[None]:
    """What is closed only by the garbage collector is not closed."""
    gc.disable()
    yield
    gc.enable()
    KEPT.clear()


def kept(call: T) -> T:
    KEPT.append(call)
    return call


@asynccontextmanager
async def model_at(
    base_url: str,
    *,
    api_key: str | None = SECRET,
    connect_cap_ms: int = 5000,
    first_token_cap_ms: int = LONG_MS,
    idle_cap_ms: int = LONG_MS,
) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel(
        base_url,
        "stub",
        api_key,
        max_sensitivity=2,
        connect_cap_ms=connect_cap_ms,
        first_token_cap_ms=first_token_cap_ms,
        idle_cap_ms=idle_cap_ms,
    )
    try:
        yield model
    finally:
        await model.aclose()


async def read(
    model: AnswerModel,
    pieces: list[ModelPiece] | None = None,
    deadline_ms: float = LONG_MS,
    on_piece: Callable[[], object] = lambda: None,
    prompt: Prompt = PROMPT,
) -> list[ModelPiece]:
    """All pieces of one answer; ``pieces`` keeps those that came before a failure."""
    pieces = [] if pieces is None else pieces
    with anyio.fail_after(20):
        async with model.stream(prompt, Deadline.after(deadline_ms)) as stream:
            async for piece in stream:
                pieces.append(piece)
                on_piece()
    return pieces


def text_of(pieces: list[ModelPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


async def closed(stub: ModelStub, calls: int = 1) -> None:
    """Returns when the server has seen the end of that many calls."""
    with anyio.fail_after(5):
        await stub.until(lambda s: sum(call.closed_at is not None for call in s.calls) >= calls)


@pytest.mark.parametrize("line_end", [{}, {"crlf": True}, {"bare_cr": True}])
@pytest.mark.parametrize("size", range(1, 8))
async def test_text_arrives_exact_when_the_bytes_are_split_anywhere(
    size: int, line_end: dict[str, bool]
) -> None:
    """Chinese, emoji, line ends inside a delta and text that imitates SSE (shared case 11)."""
    async with (
        serve_stub(tokens=TEXTS, split_bytes=size, **line_end) as stub,
        model_at(stub.base_url) as model,
    ):
        pieces = await read(model)
    assert text_of(pieces) == "".join(TEXTS)
    for piece in pieces:
        if isinstance(piece, TextPiece):
            piece.text.encode()


async def test_a_line_of_300_kb_arrives_exact() -> None:
    """Far beyond one read of the socket."""
    async with serve_stub(tokens=["a"], giant_line=300_000) as stub, model_at(stub.base_url) as model:
        prompt = replace(PROMPT, max_output_tokens=32_768)
        assert text_of(await read(model, prompt=prompt)) == "a" + "g" * 300_000


async def test_a_line_past_the_limit_fails() -> None:
    """A megabyte in one event is no answer."""
    async with serve_stub(tokens=["a"], giant_line=1_100_000) as stub, model_at(stub.base_url) as model:
        with pytest.raises(UpstreamFailed):
            await read(model)
        await closed(stub)


async def test_surrogate_halves_in_two_chunks_are_one_emoji() -> None:
    """As servers send them that cut tokens inside a code point."""
    async with (
        serve_stub(tokens=["a😀b", "👍"], split_surrogates=True) as stub,
        model_at(stub.base_url) as model,
    ):
        assert text_of(await read(model)) == "a😀b👍"


async def test_usage_and_finish_end_an_answer() -> None:
    """As the model states them."""
    async with (
        serve_stub(tokens=["a", "b"], usage_counts=[11, 2], finish_reason="length", prelude=3) as stub,
        model_at(stub.base_url) as model,
    ):
        pieces = await read(model)
    usage = ModelUsage(11, 2, estimated=False)
    assert pieces == [TextPiece("a"), TextPiece("b"), usage, ModelFinish("length")]


@pytest.mark.parametrize("script", [{"usage": False}, {"usage": False, "done": False}])
async def test_usage_is_estimated_when_the_model_gives_none(script: dict[str, Any]) -> None:
    """And an end without [DONE] is an end once the model has finished."""
    async with serve_stub(tokens=["hi"], **script) as stub, model_at(stub.base_url) as model:
        *_, usage, finish = await read(model)
    assert isinstance(usage, ModelUsage)
    assert usage.estimated
    assert finish == ModelFinish("stop")


@pytest.mark.parametrize("how", ["rst", "eof", "half_line"])
async def test_a_model_that_dies_after_two_tokens_fails_after_two_pieces(how: str) -> None:
    """Reset, clean end without a finish, half a JSON line: never taken for complete."""
    pieces: list[ModelPiece] = []
    script = {"tokens": ["a", "b", "c"], "gate_after_tokens": 2, "die_after_tokens": 2, "die_how": how}
    async with serve_stub(**script) as stub, model_at(stub.base_url) as model:
        with pytest.raises(UpstreamFailed):
            await read(model, pieces, on_piece=lambda: stub.open_gate() if len(pieces) == 2 else None)
    assert pieces == [TextPiece("a"), TextPiece("b")]


@pytest.mark.parametrize(
    "script",
    [
        {"no_finish": True},
        {"no_finish": True, "done": False},
        {"finish_reason": "content_filter"},
        {"mid_stream_error": {"message": "secret upstream text"}},
    ],
)
async def test_an_answer_without_a_proper_end_fails_after_its_text(script: dict[str, Any]) -> None:
    """The text that came is delivered, the failure follows, and it doesn't quote the upstream."""
    pieces: list[ModelPiece] = []
    async with serve_stub(tokens=["a", "b"], **script) as stub, model_at(stub.base_url) as model:
        with pytest.raises(UpstreamFailed) as failed:
            await read(model, pieces)
    assert text_of(pieces) == "ab"
    assert "upstream text" not in str(failed.value)


@pytest.mark.parametrize("comments_only", [False, True])
@pytest.mark.parametrize(
    ("stalls_after", "caps", "deadline_ms", "stage"),
    [
        (2, {"idle_cap_ms": 150}, LONG_MS, "idle"),
        (0, {"first_token_cap_ms": 150}, LONG_MS, "first_token"),
        (2, {}, 300, "total"),
        (0, {}, 150, "total"),
    ],
)
async def test_silence_ends_in_the_name_of_the_clock_that_ran_out(
    stalls_after: int, caps: dict[str, Any], deadline_ms: float, stage: str, comments_only: bool
) -> None:
    """Comments and empty deltas are silence too; the upstream is closed."""
    pieces: list[ModelPiece] = []
    script = {
        "tokens": ["a"] * 3,
        "stall_after_tokens": stalls_after,
        "comments_only": comments_only,
        "prelude": 2,
    }
    async with serve_stub(**script) as stub, model_at(stub.base_url, **caps) as model:
        with pytest.raises(DeadlineExceeded) as expired:
            await read(model, pieces, deadline_ms)
        await closed(stub)
        assert stub.calls[0].reason == "client_gone"
    assert expired.value.stage == stage
    assert len(pieces) == stalls_after


@pytest.mark.parametrize(
    ("caps", "deadline_ms", "stage"), [(150, LONG_MS, "first_token"), (LONG_MS, 150, "total")]
)
async def test_slow_headers_use_up_the_first_tokens_time(caps: int, deadline_ms: float, stage: str) -> None:
    """Entering the block raises, and the upstream is closed."""
    async with (
        serve_stub(header_delay_ms=LONG_MS) as stub,
        model_at(stub.base_url, first_token_cap_ms=caps) as model,
    ):
        with pytest.raises(DeadlineExceeded) as expired:
            await read(model, deadline_ms=deadline_ms)
        await closed(stub)
    assert expired.value.stage == stage


async def test_a_call_without_time_left_never_reaches_the_model() -> None:
    """Nothing is sent when the deadline has passed."""
    async with serve_stub() as stub, model_at(stub.base_url) as model:
        with pytest.raises(DeadlineExceeded):
            await read(model, deadline_ms=0)
        assert stub.calls == []


async def test_silence_after_the_finish_does_not_spoil_the_answer() -> None:
    """The model has said that it is complete; only usage is missing."""

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        event = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(event), event)
        )
        await reader.read()

    async with raw_server(server) as base_url, model_at(base_url) as model:
        *texts, usage, finish = await read(model)
    assert texts == [TextPiece("hi")]
    assert isinstance(usage, ModelUsage)
    assert finish == ModelFinish("stop")


HI = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


@asynccontextmanager
async def raw_server(answer: Any) -> AsyncIterator[str]:
    """A server for what even the scripted one doesn't do; yields its base URL."""
    handlers: set[asyncio.Task[Any]] = set()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        await answer(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        await asyncio.wait(handlers, timeout=5)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nnot a chunk",
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ndata: ",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 8\r\n\r\nnot gzip",
    ],
)
async def test_what_is_no_answer_at_all_fails(raw: bytes) -> None:
    """Closed at once, another protocol, broken framing, no stream, broken coding."""
    connections = 0

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)

    async with raw_server(server) as base_url, model_at(base_url) as model:
        with pytest.raises(UpstreamFailed):
            await read(model)
    assert connections == 1


async def test_a_redirect_is_not_followed() -> None:
    """The passages go to the configured endpoint or nowhere."""
    async with serve_stub(reply="hi") as elsewhere:
        location = f"location: {elsewhere.base_url}/chat/completions".encode()

        async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 307 Go\r\n" + location + b"\r\ncontent-length: 0\r\n\r\n")

        async with raw_server(server) as base_url, model_at(base_url) as model:
            with pytest.raises(UpstreamFailed):
                await read(model)
        assert elsewhere.calls == []


async def test_no_cookie_is_kept() -> None:
    """One would go with the calls of every tenant, and one that can't be sent back would fail them all."""
    cookies = iter([b"set-cookie: node=7; Path=/\r\n", b"set-cookie: a=\xff; Path=/\r\n", b""])
    heads: list[bytes] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).lower())
        writer.write(b"HTTP/1.1 200 OK\r\n" + next(cookies) + b"connection: close\r\n\r\n" + HI)

    async with raw_server(server) as base_url:
        # an address has no cookies in one of the two stores, a name has them in both
        async with model_at(base_url.replace("127.0.0.1", "localhost")) as model:
            for _ in range(3):
                assert text_of(await read(model)) == "hi"
    assert [b"\r\ncookie:" in head for head in heads] == [False] * 3


async def test_what_cannot_be_sent_is_a_failure_of_the_call() -> None:
    """No defect, which would pass by breaker and second endpoint."""
    prompt = replace(PROMPT, messages=(Message("user", "half a pair: \ud83d"),))
    async with serve_stub() as stub, model_at(stub.base_url) as model:
        with pytest.raises(UpstreamFailed):
            await read(model, prompt=prompt)


BOUND = 16 * PROMPT.max_output_tokens + 1024


@pytest.mark.parametrize("flood", [{"tokens": ["ab"] * BOUND}, {"tokens": ["x" * 10_000] * 4000}])
async def test_a_model_that_does_not_keep_to_its_tokens_is_hung_up_on(flood: dict[str, Any]) -> None:
    """The answer is cut where no honest one gets to, and ends by its length."""
    async with serve_stub(**flood) as stub, model_at(stub.base_url) as model:
        pieces = await read(model)
        await closed(stub)
        assert stub.calls[0].reason == "client_gone"
    *_, usage, finish = pieces
    assert (len(text_of(pieces)), finish) == (BOUND, ModelFinish("length"))
    assert isinstance(usage, ModelUsage)
    assert (usage.output_tokens, usage.estimated) == (BOUND // 4, True)


async def test_an_answer_as_long_as_its_tokens_can_be_is_whole() -> None:
    """The last character before the cut is still an honest one."""
    async with serve_stub(tokens=["x" * BOUND]) as stub, model_at(stub.base_url) as model:
        pieces = await read(model)
    assert (len(text_of(pieces)), pieces[-1]) == (BOUND, ModelFinish("stop"))


async def test_a_refused_connection_fails() -> None:
    """Nobody listens there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with model_at(f"http://127.0.0.1:{port}/v1") as model:
            with pytest.raises(UpstreamFailed):
                await read(model)
            assert await model.ping() is False


@pytest.mark.parametrize(
    ("status", "retry_after", "wait_ms"),
    [
        (429, "2", 2000),
        (503, "0.5", 500),
        (503, "Wed, 21 Oct 2015 07:28:00 GMT", 0),
        (429, "soon", None),
        (429, "nan", None),
        (429, "1e300", 3_600_000),
        (503, None, None),
        (500, "2", None),
        (400, None, None),
        (401, None, None),
    ],
)
async def test_an_error_instead_of_an_answer_fails_with_its_waiting_time(
    status: int, retry_after: str | None, wait_ms: int | None
) -> None:
    """Neither the upstream's words nor the key are in what is shown; there is one attempt."""
    body = {"error": {"message": f"private words {SECRET}", "code": "x"}}
    error = {"status": status, "body": body, "retry_after": retry_after}
    async with serve_stub(error_before=error) as stub, model_at(stub.base_url) as model:
        with pytest.raises(UpstreamFailed) as failed:
            await read(model)
        assert len(stub.calls) == 1
    assert failed.value.retry_after_ms == wait_ms
    assert "private" not in str(failed.value)
    assert SECRET not in f"{failed.value!r} {failed.value.detail}"


async def leave_at_token_three(model: OpenAIModel, stub: ModelStub, how: str) -> None:
    """Enters, reads three tokens of a model that would go on, and leaves as told."""
    async with kept(model.stream(PROMPT, Deadline.after(LONG_MS))) as stream:
        for _ in range(3):
            await anext(stream)
        if how == "exception":
            raise KeyError("the reader's own failure")
        if how == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()


@pytest.mark.parametrize("how", ["leave", "exception", "cancel"])
async def test_leaving_at_token_three_closes_the_upstream(how: str) -> None:
    """However the block is left, no later token is produced (shared case 1)."""
    script = {"tokens": ["a"] * 50, "cadence_ms": 100}
    async with serve_stub(**script) as stub, model_at(stub.base_url) as model:
        task = asyncio.create_task(leave_at_token_three(model, stub, how))
        await asyncio.wait([task], timeout=10)
        await closed(stub)
        call = stub.calls[0]
        assert (call.reason, call.tokens, call.tokens_after_close) == ("client_gone", 3, 0)
        assert task.cancelled() is (how == "cancel")
        if how == "exception":
            assert isinstance(task.exception(), KeyError)


@pytest.mark.parametrize(
    "script",
    [
        {"header_delay_ms": 5000},
        {"first_token_ms": 5000},
        {"tokens": ["a"] * 9, "stall_after_tokens": 3},
        {"tokens": ["a"] * 9, "stall_after_tokens": 3, "comments_only": True},
        {"tokens": ["x" * 10_000] * 4000},
    ],
)
@pytest.mark.parametrize("by", ["task", "scope"])
async def test_a_cancel_in_any_phase_closes_the_upstream(script: dict[str, Any], by: str) -> None:
    """Before headers, before the first token, while it is silent, and when nobody reads (shared case 1)."""
    expected = int(script.get("stall_after_tokens", 0))
    scope = anyio.CancelScope()
    reached = asyncio.Event()

    async def reader() -> None:
        with scope:
            async with kept(model.stream(PROMPT, Deadline.after(LONG_MS))) as stream:
                if len(script.get("tokens", [])) > 100:
                    reached.set()
                    await asyncio.Event().wait()
                for _ in range(expected):
                    await anext(stream)
                reached.set()
                await anext(stream)

    async with serve_stub(**script) as stub, model_at(stub.base_url) as model:
        task = asyncio.create_task(reader())
        with anyio.fail_after(10):
            await stub.until(lambda s: len(s.calls) == 1)
            if "header_delay_ms" not in script:
                await reached.wait()
        if by == "task":
            task.cancel()
        else:
            scope.cancel()
        await closed(stub)
        await asyncio.wait([task], timeout=5)
        assert task.done()
        assert (stub.calls[0].reason, stub.calls[0].tokens_after_close) == ("client_gone", 0)
        if "first_token_ms" in script or "header_delay_ms" in script:
            assert stub.calls[0].tokens == 0


async def test_a_cancel_while_connecting_leaves_no_socket_behind() -> None:
    """The listener's queue is full, so the handshake hangs; a second call is bounded by the connect cap."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            async with model_at(f"http://127.0.0.1:{address[1]}/v1", connect_cap_ms=300) as model:
                ours = {filler.getsockname()[1] for filler in fillers}
                task = asyncio.create_task(read(model))
                with anyio.fail_after(10):
                    while not connecting(address[1], ours):
                        await anyio.lowlevel.checkpoint()
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled()
                    assert connecting(address[1], ours) == 0
                    with pytest.raises(UpstreamFailed):
                        await read(model)
                    assert connecting(address[1], ours) == 0
        finally:
            for filler in fillers:
                filler.close()


def connecting(port: int, ours: set[int]) -> int:
    """How many sockets of this process point to the port, the test's own left out."""
    connections = psutil.Process().net_connections("tcp4")
    return sum(bool(c.raddr) and c.raddr.port == port and c.laddr.port not in ours for c in connections)


@pytest.mark.parametrize("script", [{"header_delay_ms": LONG_MS}, {"first_token_ms": LONG_MS}])
async def test_after_150_cancels_at_once_the_pool_is_usable(script: dict[str, Any]) -> None:
    """Every upstream call is closed, and as many new ones run."""
    async with serve_stub(**script) as stub, model_at(stub.base_url) as model:
        tasks = [asyncio.create_task(read(model)) for _ in range(150)]
        with anyio.fail_after(15):
            await stub.until(lambda s: len(s.calls) == 150)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=5)
        await closed(stub, 150)
        assert {call.reason for call in stub.calls} == {"client_gone"}
        stub.script(reply="hi")
        answers = await asyncio.gather(*(read(model) for _ in range(150)))
        assert {text_of(pieces) for pieces in answers} == {"hi"}


async def test_a_finished_call_gives_its_connection_to_the_next() -> None:
    """So that a TLS handshake isn't part of every first token; also when the body ends after [DONE]."""
    async with serve_stub(tokens=["hi"], gate_before_end=True) as stub, model_at(stub.base_url) as model:
        pieces: list[ModelPiece] = []
        await read(model, pieces, on_piece=lambda: stub.open_gate() if len(pieces) == 3 else None)
        await closed(stub)
        assert stub.calls[0].reason == "finished"
        await read(model)
        assert stub.accepted == 1


async def test_two_answers_at_once_do_not_mix() -> None:
    """Each has its own decoder and clocks."""
    async with (
        serve_stub(reply="slow and steady wins", cadence_ms=1) as stub,
        model_at(stub.base_url) as model,
    ):
        answers = await asyncio.gather(*(read(model) for _ in range(20)))
    assert {text_of(pieces) for pieces in answers} == {"slow and steady wins"}


async def test_prompts_and_keys_are_not_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does repr show the key."""
    with caplog.at_level(logging.DEBUG):
        async with serve_stub(reply="hi") as stub, model_at(stub.base_url) as model:
            await read(model)
            assert SECRET not in repr(model)
    vendors = ("openai", "httpx2", "httpcore2", "aiohttp")
    assert [record for record in caplog.records if record.name.startswith(vendors)] == []
    assert "the question" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(("key", "header"), [(SECRET, f"Bearer {SECRET}"), (None, None)])
async def test_only_the_configured_key_is_sent(
    key: str | None, header: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the SDK's own variable belongs to another endpoint."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    async with serve_stub(reply="hi") as stub, model_at(stub.base_url, api_key=key) as model:
        await read(model)
        assert await model.ping() is True
        assert stub.calls[0].authorization == header
        assert (model.name, model.max_sensitivity) == ("stub", 2)


@pytest.mark.parametrize(
    ("base_url", "key"),
    [("", None), ("ftp://host/v1", None), ("http://", None), ("http://h/v1", "a\nb"), ("http://h/v1", "")],
)
def test_a_url_or_key_that_cannot_work_is_refused(base_url: str, key: str | None) -> None:
    """At the start, not in the first question."""
    with pytest.raises(ConfigurationError):
        OpenAIModel(
            base_url, "m", key, max_sensitivity=1, connect_cap_ms=1, first_token_cap_ms=1, idle_cap_ms=1
        )
