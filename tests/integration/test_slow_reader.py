"""A client that stops reading: its connection is dropped, and the server holds nothing for it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import psutil
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.adapters.memory.models import ScriptedModel
from gateway.app import create_app
from gateway.errors import PrincipalRevoked
from gateway.stream.protocol import Revoked
from gateway.stream.session import CloseReason, Session
from tests.harness.process import eventually
from tests.harness.serving import followed, serving, serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 20
PIECE_BYTES = 65_536
PIECES = 400
#: both kernels' buffers, the connection's one event and the session's own buffer, generously
MOST_UNDER_WAY = 16


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


async def dropped(port: int) -> None:
    """Returns once the server has closed every connection that it took on its port."""

    async def look() -> bool:
        return not [
            one
            for one in psutil.Process().net_connections()
            if one.laddr.port == port and one.status != psutil.CONN_LISTEN
        ]

    await eventually(look, within_s=PATIENCE_S)


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
