"""A client that stops reading: its connection is dropped, and the server holds nothing for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.app import create_app
from gateway.errors import PrincipalRevoked
from gateway.stream.protocol import Revoked
from gateway.stream.session import CloseReason, Session
from gateway.web.connection import KERNEL_BYTES, Connection, ConnectionLimits
from tests.harness.serving import followed, serving, serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import World
from tests.integration.raw_client import dropped, head, raw, silent

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
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
