"""The client's reader of events: any split of the bytes gives the same events; its errors are typed."""

import asyncio
import json
import random
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from gateway.client import ApiError, EventReader, GatewayClient, ServerUnreachable, StreamEvent
from gateway.stream.protocol import AnswerStatus, Delta, Done, Event, Meta, Timings, Usage
from gateway.web.sse import encode

PATIENCE_S = 20
EVENTS: list[Event] = [
    Meta("req", "trace", "知识库", "rev", 1, "space", "model", False, ()),
    Delta('上传 👍 "quoted" \\ back\r\nslash\u2028'),
    Delta("data: x\n\nevent: done\n"),
    Delta("x" * 3000),
    Done(AnswerStatus.ANSWERED, (), (), Usage(1, 2, estimated=True), True, False, Timings(1.5, None, 2.0)),
]
HEARTBEAT = b": \n\n"
WIRE = HEARTBEAT.join(encode(number, event) for number, event in enumerate(EVENTS, start=1)) + HEARTBEAT
WHOLE = list(EventReader().feed(WIRE))


def test_a_whole_stream_is_read_at_once() -> None:
    """Names, numbers and objects as they were sent; heartbeats are nothing."""
    assert [event.name for event in WHOLE] == ["meta", "delta", "delta", "delta", "done"]
    assert [event.sequence for event in WHOLE] == [1, 2, 3, 4, 5]
    texts = [event.data["text"] for event in WHOLE if event.name == "delta"]
    assert texts == [event.text for event in EVENTS if isinstance(event, Delta)]
    assert WHOLE[0].data["knowledge_base"] == "知识库"
    assert WHOLE[-1].data["timings"] == {"retrieval_ms": 1.5, "ttft_ms": None, "total_ms": 2.0}


def test_every_place_to_split_gives_the_same_events() -> None:
    """Also inside a Han character, an emoji, a field's name and between the two line ends."""
    for place in range(len(WIRE) + 1):
        reader = EventReader()
        assert [*reader.feed(WIRE[:place]), *reader.feed(WIRE[place:])] == WHOLE


def test_single_bytes_give_the_same_events() -> None:
    """The smallest pieces there are."""
    reader = EventReader()
    assert [event for byte in WIRE for event in reader.feed(bytes([byte]))] == WHOLE


@pytest.mark.parametrize("seed", range(20))
def test_random_splits_give_the_same_events(seed: int) -> None:
    """Pieces of any size, empty ones too."""
    rng = random.Random(seed)
    reader, place, events = EventReader(), 0, list[StreamEvent]()
    while place < len(WIRE):
        size = rng.choice([0, 1, 3, 50, 1000])
        events += reader.feed(WIRE[place : place + size])
        place += size
    assert events == WHOLE


LENIENT: dict[str, tuple[bytes, list[tuple[str, int, object]]]] = {
    "no name": (b'data: {"a": 1}\n\n', [("message", 0, {"a": 1})]),
    "no blank after the colon": (b'event:delta\nid:7\ndata:{"text":"x"}\n\n', [("delta", 7, {"text": "x"})]),
    "an unknown event": (b"event: later\nid: 1\ndata: {}\n\n", [("later", 1, {})]),
    "an unknown field": (b"retry: 10\nevent: delta\nid: 1\ndata: {}\n\n", [("delta", 1, {})]),
    "a comment inside": (b": hello\nevent: delta\nid: 1\n: there\ndata: {}\n\n", [("delta", 1, {})]),
    "no data": (b"event: delta\nid: 1\n\n", []),
    "comments alone": (b": \n\n:\n\n: ping\n\n", []),
    "not ended": (b"event: delta\nid: 1\ndata: {}\n", []),
}


@pytest.mark.parametrize(("content", "expected"), LENIENT.values(), ids=LENIENT)
def test_what_a_later_server_may_add_is_passed_over(
    content: bytes, expected: list[tuple[str, int, object]]
) -> None:
    """Unknown names and fields are no errors; an event without its end is none yet."""
    events = list(EventReader().feed(content))
    assert [(event.name, event.sequence, event.data) for event in events] == expected


# -- answers that aren't streams -----------------------------------------------------------------

Serve = Callable[[], bytes]


@asynccontextmanager
async def answering(response: bytes, heads: list[bytes] | None = None) -> AsyncIterator[str]:
    """A server that gives one response to every connection, and notes the heads of what it was asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length:  # who hangs up on a body that is under way resets the connection
            await reader.readexactly(int(length[1]))
        if heads is not None:
            heads.append(head)
        writer.write(response)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"


def http(status: str, content: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + content


async def in_thread(url: str, call: Callable[[GatewayClient], Any]) -> Any:
    def run() -> Any:
        with GatewayClient(url, "token") as client:
            return call(client)

    with anyio.fail_after(PATIENCE_S):
        return await anyio.to_thread.run_sync(run)


PROBLEM = json.dumps({"code": "rate_limited", "title": "Too many", "detail": "wait"}).encode()
PROBLEMS: dict[str, tuple[bytes, tuple[int, str, str]]] = {
    "a problem": (http("429 Too Many", PROBLEM, "application/problem+json"), (429, "rate_limited", "wait")),
    "a proxy's page": (http("502 Bad Gateway", b"<html>", "text/html"), (502, "unknown", "HTTP 502")),
    "nothing": (http("503 Unavailable", b""), (503, "unknown", "HTTP 503")),
    "no object": (http("500 Oops", b"[1]"), (500, "unknown", "HTTP 500")),
    "text in JSON": (http("500 Oops", b'"boom"'), (500, "unknown", "HTTP 500")),
}
CALLS: dict[str, Callable[[GatewayClient], Any]] = {
    "ask": lambda client: list(client.ask("What?")),
    "search": lambda client: client.search("What?"),
    "task": lambda client: client.task("t"),
    "activate": lambda client: client.activate("r"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(("response", "expected"), PROBLEMS.values(), ids=PROBLEMS)
async def test_a_refusal_is_one_typed_error(
    response: bytes, expected: tuple[int, str, str], call: Callable[[GatewayClient], Any]
) -> None:
    """Status, the server's own code and its detail; also when a proxy answers in its stead."""
    async with answering(response) as url:
        with pytest.raises(ApiError) as caught:
            await in_thread(url, call)
    error = caught.value
    assert (error.status, error.problem_code, str(error)) == expected


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_server_that_is_not_there_is_one_typed_error(call: Callable[[GatewayClient], Any]) -> None:
    """The library's own exceptions stay inside."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ServerUnreachable):
            await in_thread(url, call)


@pytest.mark.parametrize("call", [CALLS["search"], CALLS["task"]])
@pytest.mark.parametrize("content", [b"<html>", b"", b"[]", b'"x"'])
async def test_a_success_that_is_no_object_is_a_typed_error_too(
    call: Callable[[GatewayClient], Any], content: bytes
) -> None:
    """Somebody else listens on that port."""
    async with answering(http("200 OK", content)) as url:
        with pytest.raises(ApiError):
            await in_thread(url, call)


async def test_a_stream_that_breaks_off_is_a_typed_error() -> None:
    """Events so far are given; then the connection's end is told."""
    chunk = WIRE[:400]
    response = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"%x\r\n%b\r\n" % (len(chunk), chunk)
    )
    events: list[StreamEvent] = []

    def take(client: GatewayClient) -> None:
        for event in client.ask("What?"):
            events.append(event)

    async with answering(response) as url:
        with pytest.raises(ServerUnreachable):
            await in_thread(url, take)
    assert events
    assert events == WHOLE[: len(events)]


@pytest.mark.parametrize("fresh", [False, True])
async def test_only_a_fresh_answer_is_asked_for_with_no_store(fresh: bool) -> None:
    """And what its end is acknowledged with never is."""
    heads: list[bytes] = []
    async with answering(http("200 OK", WIRE, "text/event-stream"), heads) as url:
        events = await in_thread(url, lambda client: list(client.ask("What?", fresh=fresh)))
    assert events == WHOLE
    asked, acknowledged = (head.lower() for head in heads)
    assert (b"cache-control: no-store\r\n" in asked) is fresh
    assert b"cache-control" not in acknowledged
