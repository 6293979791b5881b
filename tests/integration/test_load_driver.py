"""The load driver against a scripted server: open in its loop, honest about itself, true to its manners."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loadtest import rounds
from loadtest.client_manner import STAYS, How, Leaving, Manner, Phase
from loadtest.client_record import Ending, Record
from loadtest.client_stream import opened
from loadtest.open_loop_report import summary
from loadtest.open_loop_run import Target, drive
from loadtest.scenarios import Arrival
from loadtest.stub_http import Exchange, StubServer

SSE = {"content-type": "text/event-stream"}
META = ("meta", {"request_id": "req_1"})
DELTA = ("delta", {"text": "words "})
DONE = ("done", {"status": "ANSWERED", "timings": {"ttft_ms": 12.5}})
REFUSED = ("done", {"status": "REFUSED_NO_EVIDENCE", "timings": {"ttft_ms": None}})
ERROR = ("error", {"code": "upstream_failed"})
REVOKED = ("revoked", {"reason": "user", "revoked_at": 1.0})
PATIENCE_S = 20
BODY = {"question": "what?", "knowledge_base": "handbook"}

Answering = Callable[[Exchange], Awaitable[None]]
Event = tuple[str, dict[str, Any]]


async def events(exchange: Exchange, *sent: Event) -> None:
    for number, (name, data) in enumerate(sent, start=1):
        await exchange.write(f"event: {name}\nid: {number}\ndata: {json.dumps(data)}\n\n".encode())


async def answer(exchange: Exchange, *sent: Event) -> None:
    """A whole stream of these events."""
    exchange.start(200, SSE)
    await events(exchange, *sent)
    exchange.end()


async def whole(exchange: Exchange) -> None:
    await answer(exchange, META, DELTA, DELTA, DONE)


async def silent(exchange: Exchange) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def server(answering: Answering) -> AsyncIterator[int]:
    """The port of a server that answers so."""
    running = await StubServer.listen(answering)
    try:
        yield running.port
    finally:
        await running.close()


def at_once(count: int, manner: Manner = STAYS) -> list[Arrival]:
    return [Arrival(0.0, "what?", manner) for _ in range(count)]


async def driven(port: int, arrivals: Sequence[Arrival], patience_s: float = PATIENCE_S) -> list[Record]:
    with anyio.fail_after(PATIENCE_S):
        return await drive(Target(port, ["token"], "handbook", patience_s=patience_s), arrivals)


async def test_a_server_that_stalls_does_not_stop_the_arrivals() -> None:
    """Not one question is answered before the last one has been asked: a closed loop would wait for ever."""
    arrived = 0
    all_there = asyncio.Event()

    async def stalled(exchange: Exchange) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 30:
            all_there.set()
        await all_there.wait()
        await whole(exchange)

    async with server(stalled) as port:
        records = await driven(port, [Arrival(n * 0.005, "what?", STAYS) for n in range(30)])
    assert {record.ending for record in records} == {Ending.ANSWERED}
    last_due_ms = records[-1].at * 1000
    assert records[0].last_ms is not None
    assert records[0].last_ms >= last_due_ms, "the first one waited for the last one, and that counts"


async def test_latency_counts_from_the_moment_that_was_due() -> None:
    """A question that was due five seconds ago is five seconds late, in every figure, and the run is void."""
    async with server(whole) as port:
        (record,) = await driven(port, [Arrival(-5.0, "what?", STAYS)])
    assert record.lag_ms > 4900
    assert record.headers_ms is not None
    assert record.last_ms is not None
    assert record.lag_ms <= record.headers_ms <= record.last_ms
    figures = summary([record], seconds=1.0)
    assert figures["lag_ms"]["max"] == round(record.lag_ms, 2)
    assert not figures["valid"]


async def test_a_client_takes_what_was_made_for_others_only_when_told_to() -> None:
    """Else what is measured would be the cache."""
    wishes: list[str | None] = []

    async def kept(exchange: Exchange) -> None:
        wishes.append(exchange.headers.get("cache-control"))
        await answer(exchange, ("meta", {"request_id": "req_1", "cached": True}), DELTA, DONE)

    async with server(kept) as port:
        records = await driven(port, [*at_once(1), *at_once(1, Manner(reuses=True))])
    assert sorted(wishes, key=str) == [None, "no-store"]
    assert [record.cached for record in records] == [True, True]


@pytest.mark.parametrize(
    ("sent", "ending", "code"),
    [
        ([META, DELTA, DONE], Ending.ANSWERED, None),
        ([META, REFUSED], Ending.REFUSED, None),
        ([META, DELTA, ERROR], Ending.ERROR, "upstream_failed"),
        ([META, DELTA, REVOKED], Ending.REVOKED, "user"),
        ([META, DELTA], Ending.TRUNCATED, None),
    ],
)
async def test_an_answer_is_what_its_last_event_says(
    sent: list[Event], ending: Ending, code: str | None
) -> None:
    """Without one it was cut off, however properly the body ended."""

    async def answering(exchange: Exchange) -> None:
        await answer(exchange, *sent)

    async with server(answering) as port:
        (record,) = await driven(port, at_once(1))
    assert (record.ending, record.code, record.status) == (ending, code, 200)
    assert record.request_id == "req_1"
    assert record.lost is (ending in {Ending.ERROR, Ending.TRUNCATED})


@pytest.mark.parametrize(
    ("status", "ending"), [(429, Ending.REJECTED), (503, Ending.REJECTED), (504, Ending.ERROR)]
)
async def test_a_problem_is_a_rejection_or_an_error_with_its_code(status: int, ending: Ending) -> None:
    """Nothing was admitted, so nothing is lost."""

    async def answering(exchange: Exchange) -> None:
        exchange.answer_json(status, {"code": "some_code"})

    async with server(answering) as port:
        (record,) = await driven(port, at_once(1))
    assert (record.ending, record.code, record.status, record.lost) == (ending, "some_code", status, False)


async def test_a_page_of_a_proxy_is_named_by_its_status() -> None:
    """It has no code of ours."""

    async def answering(exchange: Exchange) -> None:
        exchange.start(502, {"content-type": "text/html"})
        await exchange.write(b"<html>")
        exchange.end()

    async with server(answering) as port:
        (record,) = await driven(port, at_once(1))
    assert (record.ending, record.code) == (Ending.ERROR, "http_502")


async def test_a_stream_that_is_reset_is_truncated() -> None:
    """And one that is reset before its headers never reached anybody."""
    turns = iter((True, False))

    async def answering(exchange: Exchange) -> None:
        if next(turns):
            exchange.start(200, SSE)
            await events(exchange, META)
        exchange.reset()

    async with server(answering) as port:
        records = await driven(port, [Arrival(0.0, "what?", STAYS), Arrival(0.2, "what?", STAYS)])
    assert [record.ending for record in records] == [Ending.TRUNCATED, Ending.UNREACHABLE]


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    """The run goes on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        records = await driven(unused.getsockname()[1], at_once(3))
    assert [(record.ending, record.code) for record in records] == [(Ending.UNREACHABLE, "connect")] * 3


async def test_a_client_gives_up_when_its_patience_is_over() -> None:
    """A server that never answers can't hold up the run."""
    async with server(silent) as port:
        (record,) = await driven(port, at_once(1), patience_s=0.05)
    assert (record.ending, record.code) == (Ending.ERROR, "client_timeout")


@pytest.mark.parametrize("how", How)
@pytest.mark.parametrize("phase", [Phase.BEFORE_HEADERS, Phase.AFTER_META, Phase.MID_STREAM])
async def test_a_client_leaves_in_the_phase_it_was_told_to(phase: Phase, how: How) -> None:
    """The server sees it go then, and what was left is told as such."""
    gone = asyncio.Event()

    async def answering(exchange: Exchange) -> None:
        exchange.on_gone = gone.set
        if phase is Phase.BEFORE_HEADERS:
            await gone.wait()
        exchange.start(200, SSE)
        for event in [META, *[DELTA] * (5 if phase is Phase.MID_STREAM else 0)]:
            await events(exchange, event)
        await silent(exchange)

    async with server(answering) as port:
        leaving = Leaving(phase, how, after_deltas=3)
        (record,) = await driven(port, at_once(1, Manner(leaving=leaving)))
        with anyio.fail_after(PATIENCE_S):
            await gone.wait()
    assert (record.ending, record.left) == (Ending.LEFT, phase)
    assert record.deltas == (3 if phase is Phase.MID_STREAM else 0)
    assert not record.lost


async def test_who_would_leave_in_a_phase_that_never_comes_stays() -> None:
    """A refusal has no middle."""

    async def answering(exchange: Exchange) -> None:
        await answer(exchange, META, REFUSED)

    async with server(answering) as port:
        (record,) = await driven(port, at_once(1, Manner(leaving=Leaving(Phase.MID_STREAM))))
    assert (record.ending, record.left) == (Ending.REFUSED, None)


async def test_a_slow_reader_holds_up_the_server() -> None:
    """What it hasn't read stays with the server once the kernel is full."""
    stuck = asyncio.Event()

    async def answering(exchange: Exchange) -> None:
        exchange.start(200, SSE)
        await events(exchange, META)
        with anyio.move_on_after(0.2) as waiting:
            while True:
                await events(exchange, ("delta", {"text": "x" * 60_000}))
                waiting.deadline = anyio.current_time() + 0.2
        stuck.set()
        await silent(exchange)

    async with server(answering) as port:
        with anyio.fail_after(PATIENCE_S):
            stream = await opened(port, "token", BODY, Manner(bytes_per_s=1000))
            await stuck.wait()
            stream.leave(How.RST)
            await stream.over.wait()
    assert stream.deltas < 100


async def test_an_end_that_was_seen_is_acknowledged_on_the_same_connection() -> None:
    """With its own time and status; the answer's own figures don't change by it."""
    asked: list[tuple[str, str]] = []

    async def answering(exchange: Exchange) -> None:
        asked.append((exchange.method, exchange.target))
        if exchange.target.endswith("/ack"):
            exchange.start(204, {}, length=0)
            exchange.end()
        else:
            await whole(exchange)

    async with server(answering) as port:
        (record,) = await driven(port, at_once(1, Manner(acknowledges=True)))
    assert asked == [("POST", "/v1/answers"), ("POST", "/v1/answers/req_1/ack")]
    assert (record.ending, record.status, record.ack_status) == (Ending.ANSWERED, 200, 204)
    assert record.ack_ms is not None
    assert record.last_ms is not None
    assert record.ack_ms >= record.last_ms
    assert record.server_ttft_ms == 12.5


async def test_callers_take_turns() -> None:
    """Each has a rate of its own at the server, so one of them alone would measure that."""
    seen: list[str] = []

    async def answering(exchange: Exchange) -> None:
        seen.append(exchange.headers["authorization"])
        await whole(exchange)

    async with server(answering) as port:
        with anyio.fail_after(PATIENCE_S):
            await drive(Target(port, ["one", "two"], "handbook"), at_once(4))
    assert sorted(seen) == ["Bearer one", "Bearer one", "Bearer two", "Bearer two"]


@pytest.mark.soak
async def test_a_short_run_of_aborts_and_kills_leaves_nothing_behind(tmp_path: Path) -> None:
    """Two hundred clients that leave; three gateways that die with every place of the quota in use."""
    left = await rounds.aborts(tmp_path / "aborts", rounds=200, warm_up=100)
    assert not left["kept"], (left["before"], left["after"])
    assert left["model_calls_open"] == left["tokens_after_close"] == 0
    killed = await rounds.kills(tmp_path / "kills", rounds=3)
    assert killed["beyond"] == killed["model_calls_open"] == 0
