"""The shipped nginx with TLS and HTTP/2: several answers on one connection, each with an end of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.stream.session import CloseReason
from tests.harness.http2 import Http2, http2
from tests.harness.nginx import TLS, Certificate, nginx, self_signed
from tests.harness.proxy import proxy_to
from tests.harness.serving import serving_world
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 20


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return self_signed()


async def knowing(model: ScriptedModel) -> World:
    world = World(model=model)
    await world.learn(TEXT)
    return world


@asynccontextmanager
async def connection_to(port: int, certificate: Certificate) -> AsyncIterator[Http2]:
    """One through nginx to the gateway on this port, within the test's patience."""
    with anyio.fail_after(PATIENCE_S):
        async with nginx(port, variant=TLS, certificate=certificate) as server:
            async with http2(server.port, certificate.chain) as connection:
                yield connection


async def test_events_pass_one_by_one(certificate: Certificate) -> None:
    """``meta`` before the first token, a delta before the next one, and a regular end."""
    gates = {0: Gate(), 1: Gate()}
    world = await knowing(ScriptedModel(["42", " megabytes"], hold=gates))
    async with serving_world(world) as port, connection_to(port, certificate) as connection:
        stream = connection.ask(world.token(), QUESTION)
        assert await connection.status(stream) == 200
        events = connection.events(stream)
        assert (await anext(events)).name == "meta"
        assert world.model.produced == 0
        gates[0].release.set()
        assert (await anext(events)).data["text"] == "42"
        assert world.model.produced == 1
        gates[1].release.set()
        assert [event.name async for event in events] == ["delta", "done"]


@pytest.mark.parametrize("place", [-1, 0, 1], ids=["no-head", "no-token", "mid-stream"])
async def test_one_stream_that_is_cancelled_ends_alone(place: int, certificate: Certificate) -> None:
    """Its question ends at the gateway, also before the head of its answer; the other one is answered."""
    gate = Gate()
    world = await knowing(ScriptedModel(["42", " megabytes"], hold={place: gate}))
    async with serving_world(world) as port, connection_to(port, certificate) as connection:
        cancelled = connection.ask(world.token(), QUESTION)
        await gate.reached.wait()
        (session,) = world.registry.of_tenant("acme")
        other = connection.ask(world.token(), QUESTION)
        connection.cancel(cancelled)
        while session.close_reason is None:
            await anyio.lowlevel.checkpoint()
        assert session.close_reason is CloseReason.CLIENT_GONE
        gate.release.set()
        assert await connection.status(other) == 200
        assert [event.name async for event in connection.events(other)][-1] == "done"
        await world.registry.idle()
    world.assert_nothing_held()


async def test_a_connection_that_is_lost_ends_all_its_streams(certificate: Certificate) -> None:
    """Whatever they are waiting for."""
    gate = Gate()
    world = await knowing(ScriptedModel(["42"], hold={0: gate}))
    async with serving_world(world) as port, connection_to(port, certificate) as connection:
        streams = [connection.ask(world.token(), QUESTION) for _ in range(3)]
        assert [await connection.status(stream) for stream in streams] == [200] * 3
        connection.close()
        await world.registry.idle()
    world.assert_nothing_held()


async def test_a_gateway_that_dies_resets_the_stream(certificate: Certificate) -> None:
    """So that nobody takes half an answer for a whole one."""
    world = await knowing(ScriptedModel(["42", " megabytes"], hold={1: Gate()}))
    async with serving_world(world) as port, proxy_to(port) as proxy:
        async with connection_to(proxy.port, certificate) as connection:
            stream = connection.ask(world.token(), QUESTION)
            assert await connection.status(stream) == 200
            events = connection.events(stream)
            assert [(await anext(events)).name, (await anext(events)).name] == ["meta", "delta"]
            await proxy.cut()
            with pytest.raises(ConnectionResetError):
                await anext(events)


async def test_refusals_have_the_same_form(certificate: Certificate) -> None:
    """A body that is too large, as over HTTP/1.1."""
    world = await knowing(ScriptedModel())
    async with serving_world(world) as port, connection_to(port, certificate) as connection:
        fields = {":method": "POST", ":scheme": "https", ":path": "/v1/answers", ":authority": "test"}
        stream = connection.send({**fields, "content-length": "70000"}, b"")
        assert await connection.status(stream) == 413
        body = b"".join([piece async for piece in connection.data(stream)])
        assert b'"code":"body_too_large"' in body
