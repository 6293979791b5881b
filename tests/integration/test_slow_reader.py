"""A client that stops reading: its connection is dropped, and the server holds nothing for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.app import create_app
from gateway.errors import PrincipalRevoked
from gateway.settings import Settings
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import AnswerStatus, Done, Meta, Revoked, Timings, Usage
from gateway.stream.revocation import RevocationKind
from gateway.stream.session import CloseReason, Session
from gateway.web.connection import KERNEL_BYTES, Connection, ConnectionLimits
from gateway.web.sse import stream_session
from tests.harness.serving import followed, serving, serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import World
from tests.integration.raw_client import dropped, head, raw, silent

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
META = Meta("req", "trace", "handbook", "rev", 1, "space", "model", False, ())
DONE = Done(AnswerStatus.ANSWERED, (), (), Usage(1, 1, estimated=False), True, False, Timings(1.0, 1.0, 1.0))
PATIENCE_S = 20
PIECE_BYTES = 65_536
PIECES = 400
#: both kernels' buffers, the connection's one event and the session's own buffer, generously
MOST_UNDER_WAY = 16
#: of a client with a receive buffer of 4096, which Linux doubles and then rounds in units of segments
CLIENT_KERNEL_BYTES = 16_384


@pytest.fixture
async def world() -> World:
    one = World(model=ScriptedModel(["x" * PIECE_BYTES] * PIECES), total_cap_ms=60_000, send_timeout_s=0.5)
    await one.learn(TEXT)
    return one


@asynccontextmanager
async def stuck(world: World, port: int) -> AsyncIterator[tuple[Wire, Session]]:
    """An answer whose reader has stopped, with the model held back by full buffers."""
    async with connected(port, receive_buffer=4096) as wire:
        await wire.ask(world.token(), QUESTION)
        await world.registry.arrived.wait()
        await blocked(world.model)
        (session,) = world.registry.of_tenant("acme")
        yield wire, session


async def blocked(model: ScriptedModel) -> None:
    """Returns once the model has produced nothing over many turns of the loop."""
    still, seen = 0, -1
    while still < 2000:
        await anyio.lowlevel.checkpoint()
        still = still + 1 if model.produced == seen and seen > 0 else 0
        seen = model.produced


async def read_rest(wire: Wire) -> int:
    """How many bytes still arrive before the connection breaks."""
    count = 0
    try:
        async for chunk in wire.chunks():
            count += len(chunk)
    except (ConnectionError, asyncio.IncompleteReadError):
        return count
    raise AssertionError("the answer came to a regular end")


async def test_a_reader_that_stops_loses_its_connection(world: World) -> None:
    """It doesn't leave by itself; the server closes, and little has been made for nobody."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with serving_world(world) as port:
            async with stuck(world, port) as (wire, session):
                await world.registry.idle()
                await dropped(port)
                assert session.close_reason is CloseReason.SLOW_READER
                assert world.model.produced <= MOST_UNDER_WAY
                assert await read_rest(wire) <= MOST_UNDER_WAY * PIECE_BYTES
    world.assert_nothing_held()


async def test_a_revoked_answer_ends_with_its_connection_when_nobody_reads(world: World) -> None:
    """What the reader hasn't taken when its right ends isn't kept for it."""
    with anyio.fail_after(2 * PATIENCE_S):
        async with serving_world(world) as port:
            async with stuck(world, port) as (_, session):
                assert session.revoke(Revoked("leaked", time.time()), PrincipalRevoked())
                await world.registry.idle()
                await dropped(port)
                assert session.close_reason is CloseReason.REVOKED
    world.assert_nothing_held()


async def test_behind_another_server_the_answer_ends_all_the_same(world: World) -> None:
    """Without a way to cut the connection off, it is left to the server; nothing else is held."""
    with anyio.fail_after(2 * PATIENCE_S):
        bare = without_extensions(create_app(world.settings, world.services))
        async with followed(world), serving(bare) as port:
            async with stuck(world, port) as (wire, session):
                await world.registry.idle()
                assert session.close_reason is CloseReason.SLOW_READER
                world.assert_nothing_held()
                wire.abort()


def without_extensions(app: ASGIApp) -> ASGIApp:
    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        scope.pop("extensions", None)
        await app(scope, receive, send)

    return plain


# -- how much is on its way, and what becomes of it ----------------------------------------------------

SMALL_BYTES = 1000


async def test_little_is_made_for_a_reader_that_never_reads() -> None:
    """As much as the docstring of the stream says: three times the channel's limit and a piece, and what
    both kernels hold.
    """
    world = World(model=ScriptedModel(["x" * SMALL_BYTES] * 2000), total_cap_ms=60_000, send_timeout_s=60)
    await world.learn(TEXT)
    limit = 3 * (world.settings.session_buffer_bytes + SMALL_BYTES) + 2 * KERNEL_BYTES + CLIENT_KERNEL_BYTES
    with anyio.fail_after(2 * PATIENCE_S):
        async with serving_world(world) as port:
            async with silent(port) as client:
                await client.send(question(world))
                await world.registry.arrived.wait()
                await blocked(world.model)
                assert 2 * world.settings.session_buffer_bytes < world.model.produced * SMALL_BYTES <= limit
            await world.registry.idle()


async def test_what_the_kernel_holds_of_a_revoked_answer_is_dropped() -> None:
    """All of it had left this process, unread; nothing more than the client's own kernel has arrives."""
    gate = Gate()
    model = ScriptedModel(["x" * SMALL_BYTES] * 40, hold={40: gate})
    world = World(model=model, total_cap_ms=60_000, send_timeout_s=60)
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, silent(port) as client:
            await client.send(question(world))
            await gate.reached.wait()
            await blocked(model)
            (session,) = world.registry.of_tenant("acme")
            assert session.revoke(Revoked("leaked", time.time()), PrincipalRevoked(), time.monotonic())
            await world.registry.idle()
            await dropped(port)
            with pytest.raises(ConnectionResetError):
                await client.rest()
            assert client.taken <= CLIENT_KERNEL_BYTES < 40 * SMALL_BYTES
    assert stops(world) == 1
    world.assert_nothing_held()


@asynccontextmanager
async def undelivered(**settings: Any) -> AsyncIterator[tuple[World, int, Wire, Session]]:
    """An answer that is whole, and of which most waits for a reader who has stopped."""
    gate = Gate()
    model = ScriptedModel(["x" * PIECE_BYTES] * 16, hold={12: gate})
    fits = 32 * PIECE_BYTES
    world = World(model=model, session_buffer_bytes=fits, send_timeout_s=60, total_cap_ms=60_000, **settings)
    await world.learn(TEXT)
    async with serving_world(world) as port, connected(port, receive_buffer=4096) as wire:
        await wire.ask(world.token(), QUESTION)
        await gate.reached.wait()
        (session,) = world.registry.of_tenant("acme")
        await blocked(model)
        gate.release.set()
        while session.close_reason is None:
            await anyio.lowlevel.checkpoint()
        assert session.close_reason is CloseReason.COMPLETED
        yield world, port, wire, session


async def test_a_whole_answer_of_which_only_the_connection_holds_the_rest_is_dropped_too() -> None:
    """Its last event was taken, so nothing is said; it is cut off and written down all the same."""
    world = World(model=ScriptedModel(["x" * 12 * PIECE_BYTES]), send_timeout_s=60, total_cap_ms=60_000)
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port, receive_buffer=4096) as wire:
            await wire.ask(world.token(), QUESTION)
            while not (sessions := world.registry.of_tenant("acme")):
                await anyio.lowlevel.checkpoint()
            (session,) = sessions
            while session.close_reason is None:
                await anyio.lowlevel.checkpoint()
            await blocked(world.model)
            assert not await stopped(world, session)
            await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
            await world.services.feed.step()
            await world.registry.idle()
            await dropped(port)
            assert await records(world) == [CloseReason.REVOKED.value]
            assert await read_rest(wire) < 12 * PIECE_BYTES
    world.assert_nothing_held()


async def stopped(world: World, session: Session) -> bool:
    return world.registry.stop(await world.verifier.verify(world.token()), session.request_id)


async def test_a_right_that_ends_with_the_last_bytes_still_cuts_them_off() -> None:
    """The response is about to end, and waits for what is before its end."""
    connection = Clogged()
    session = Session("req_1", EventChannel(1000, 0, 1))
    session.open(META)
    session.complete(DONE)
    extensions = {"gateway.connection": {"connection": connection}}
    scope: Scope = {"type": "http", "method": "POST", "extensions": extensions}
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream_session, session, Settings(), scope, silence, connection.send)
            await connection.gate.reached.wait()
            assert session.revoke(Revoked("user", 1.0), PrincipalRevoked())
            connection.gate.release.set()
            await connection.aborted.wait()
            tasks.cancel_scope.cancel()
    assert not connection.ended


class Clogged(Connection):
    """Nothing leaves it; what comes behind the last event waits at a gate."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.aborted = anyio.Event()
        self.ended = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body" and not message.get("body"):
            await self.gate.wait()
            self.ended = not message.get("more_body", False)

    def unsent(self) -> int:
        return 1

    def abort(self) -> None:
        self.aborted.set()


async def silence() -> Message:
    await anyio.sleep_forever()
    raise AssertionError


async def records(world: World) -> list[object]:
    return [entry.details["close_reason"] for entry in await world.catalog.entries("acme", 10, "answer")]


#: how an undelivered answer ends, and what its reader is told last
TAKEN_BACK = {
    "revoke": (CloseReason.REVOKED, "revoked"),
    "stop": (CloseReason.CLIENT_STOP, "stopped"),
    "kill": (CloseReason.OPERATOR_KILL, "killed"),
}


@pytest.mark.parametrize("act", TAKEN_BACK)
async def test_the_rest_of_a_whole_answer_can_be_taken_back(act: str) -> None:
    """Its reader gets the end instead, and that is what is written down, once."""
    reason, told = TAKEN_BACK[act]
    with anyio.fail_after(PATIENCE_S):
        async with undelivered(revoked_send_ms=60_000) as (world, _, wire, session):
            principal = await world.verifier.verify(world.token())
            if act == "revoke":
                await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
                await world.services.feed.step()
            else:
                obey = world.registry.stop if act == "stop" else world.registry.kill
                assert obey(principal, session.request_id)
            *_, last = await wire.all_events()
            assert told in {last.name, last.data.get("code")}
            await world.registry.idle()
            assert await records(world) == [reason.value]
    world.assert_nothing_held()


async def test_a_whole_answer_that_nobody_reads_is_dropped_when_it_is_revoked() -> None:
    """Its connection is cut off with all that it holds."""
    with anyio.fail_after(PATIENCE_S):
        async with undelivered() as (world, port, wire, _):
            await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
            await world.services.feed.step()
            await world.registry.idle()
            await dropped(port)
            assert await records(world) == [CloseReason.REVOKED.value]
            assert await read_rest(wire) < 12 * PIECE_BYTES
    assert stops(world) == 1
    world.assert_nothing_held()


def question(world: World) -> bytes:
    body = b'{"question": "%b"}' % QUESTION.encode()
    lines = (f"Authorization: Bearer {world.token()}", "Content-Type: application/json")
    return head("POST", "/v1/answers", *lines, f"Content-Length: {len(body)}") + body


async def test_a_reader_that_reads_hears_of_the_revocation_and_keeps_its_connection() -> None:
    """The cut is for those who don't: the last event has reached the client before the answer ends."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}))
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await wire.ask(world.token(), QUESTION)
            await gate.reached.wait()
            (session,) = world.registry.of_tenant("acme")
            assert session.revoke(Revoked("user", time.time()), PrincipalRevoked(), time.monotonic())
            assert (await wire.all_events())[-1].name == "revoked"
            await wire.send("GET", "/healthz")
            assert (await wire.read_head()).status == 200
    assert stops(world) == 1


def stops(world: World) -> float:
    """How many stops were measured."""
    count = world.services.metrics.registry.get_sample_value("gateway_revocation_stop_seconds_count")
    return count or 0.0


async def test_any_answer_that_nobody_reads_is_cut_off() -> None:
    """Not only streams: the connection itself sees to it, whatever the app is."""

    class Hurried(Connection):
        limits = ConnectionLimits(send_timeout_s=0.3)

    with anyio.fail_after(PATIENCE_S):
        async with serving(large_page, Hurried) as port, raw(port, receive_buffer=4096) as client:
            await client.send(head("GET", "/"))
            await client.head()
            await dropped(port)


async def test_a_reader_that_is_slow_but_reads_gets_the_whole_of_a_large_answer() -> None:
    """What counts is that enough of it goes within each time limit, not how long it takes in all."""

    class Hurried(Connection):
        limits = ConnectionLimits(send_timeout_s=0.2)

    with anyio.fail_after(PATIENCE_S):
        async with serving(large_page, Hurried) as port, raw(port, receive_buffer=65_536) as client:
            await client.send(head("GET", "/"))
            await client.head()
            for _ in range(8):
                assert len(await client.take(LARGE_BYTES // 8)) == LARGE_BYTES // 8
                await anyio.sleep(0.1)  # the reader's pace: longer in all than the limit


LARGE_BYTES = 4 * 1024 * 1024


async def large_page(scope: Scope, receive: Receive, send: Send) -> None:
    """One response in two messages."""
    if scope["type"] == "http":
        length = str(LARGE_BYTES).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        half = b"x" * (LARGE_BYTES // 2)
        await send({"type": "http.response.body", "body": half, "more_body": True})
        await send({"type": "http.response.body", "body": half})
