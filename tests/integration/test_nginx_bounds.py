"""A reader that never reads, behind nginx: what is made for it is bounded, because of our settings alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.memory.models import ScriptedModel
from gateway.stream.session import CloseReason
from tests.harness.http2 import http2
from tests.harness.nginx import TLS, Nginx, nginx, self_signed
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 40
PIECE_BYTES = 16_384
PIECES = 1_000
#: on its way at most: what the gateway holds for a session and its kernel for the socket, what the kernel
#: holds for nginx on either side, nginx' own buffer, and what the reader's kernel takes
BOUND_BYTES = 1 << 20


async def flooding(**settings: Any) -> World:
    """A world whose model says 16 MB at once."""
    world = World(model=ScriptedModel(["x" * PIECE_BYTES] * PIECES), total_cap_ms=60_000, **settings)
    await world.learn(TEXT)
    return world


def with_buffers(text: str) -> str:
    """What nginx does unless told otherwise, and unless the answer itself forbids it."""
    return text.replace("proxy_buffering off;", "proxy_ignore_headers X-Accel-Buffering;").replace(
        "proxy_max_temp_file_size 0;", ""
    )


@asynccontextmanager
async def unread(world: World, server: Nginx) -> AsyncIterator[None]:
    """A question over HTTP/1.1 whose answer isn't read."""
    async with connected(server.port, receive_buffer=4096) as wire:
        await wire.ask(world.token(), QUESTION)
        await world.registry.arrived.wait()
        yield


async def blocked(model: ScriptedModel) -> int:
    """The bytes the model has made, once it made nothing more over many turns of the loop."""
    still, seen = 0, -1
    while still < 5000:
        await anyio.lowlevel.checkpoint()
        still = still + 1 if model.produced == seen and seen > 0 else 0
        seen = model.produced
    return seen * PIECE_BYTES


async def test_little_is_made_for_a_reader_that_does_not_read() -> None:
    """Under a megabyte of sixteen; when it goes, so does everything."""
    world = await flooding()
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, nginx(port) as server:
            async with unread(world, server):
                made = await blocked(world.model)
                assert made <= BOUND_BYTES
            await world.registry.idle()
    world.assert_nothing_held()


async def test_it_is_cut_off_through_nginx() -> None:
    """The gateway ends it, and nginx passes that on: the reader finds a stream without an end."""
    world = await flooding(send_timeout_s=0.5)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, nginx(port) as server:
            async with connected(server.port, receive_buffer=4096) as wire:
                await wire.ask(world.token(), QUESTION)
                assert (await wire.read_head()).status == 200
                (session,) = world.registry.of_tenant("acme")
                await world.registry.idle()
                assert session.close_reason is CloseReason.SLOW_READER
                with pytest.raises((ConnectionError, EOFError)):
                    async for _ in wire.events():
                        pass
    world.assert_nothing_held()


async def test_with_buffers_nginx_takes_the_whole_answer_for_it() -> None:
    """What the settings are for: without them the same question has all of it made, and kept on a disk."""
    world = await flooding()
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, nginx(port, change=with_buffers) as server:
            async with unread(world, server):
                await world.registry.idle()
    assert world.model.produced >= PIECES


async def test_a_stream_of_http2_without_a_window_is_bounded_too() -> None:
    """The reader's connection stays good, and so does another stream of it."""
    world = await flooding()
    certificate = self_signed()
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            async with nginx(port, variant=TLS, certificate=certificate) as server:
                async with http2(server.port, certificate.chain, window=16_384) as connection:
                    stuck = connection.ask(world.token(), QUESTION)
                    assert await connection.status(stuck) == 200
                    assert await blocked(world.model) <= BOUND_BYTES
                    other = connection.send(
                        {":method": "GET", ":scheme": "https", ":path": "/healthz", ":authority": "test"}, b""
                    )
                    assert await connection.status(other) == 200
                    connection.cancel(stuck)
                    await world.registry.idle()
    world.assert_nothing_held()
