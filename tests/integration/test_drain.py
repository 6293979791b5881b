"""SIGTERM with everything under way: each client is told, or cut off, and the server ends by itself."""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.app import create_app
from gateway.processes.web import GatewayServer
from gateway.web.connection import connection_class, connection_of
from tests.harness.serving import followed, serving
from tests.harness.wire import connected
from tests.harness.world import Hold, World
from tests.integration.raw_client import head, raw, silent

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PATIENCE_S = 30
DRAIN_S = 0.5
LARGE_BYTES = 1024 * 1024
PATIENT: dict[str, Any] = {
    "total_cap_ms": 60_000,
    "retrieval_cap_ms": 30_000,
    "send_timeout_s": 60,
    "drain_s": DRAIN_S,
}


@asynccontextmanager
async def gateway_server(world: World) -> AsyncIterator[tuple[GatewayServer, int, asyncio.Task[None]]]:
    """The server of a web process over the world, in this loop."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(
            create_app(world.settings, world.services),
            http=connection_class(world.settings),
            ws="none",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
        )
        ready = anyio.Event()
        server = GatewayServer(config, world.registry, DRAIN_S, lambda *_: ready.set())
        async with followed(world):
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            await ready.wait()
            try:
                yield server, listener.getsockname()[1], serving
                server.should_exit = True
                await serving
            finally:
                AppStatus.should_exit = False  # the library has seen the signal, for this whole process


async def test_a_stop_ends_everything_that_is_under_way(caplog: pytest.LogCaptureFixture) -> None:
    """Who reads hears `shutting_down` at the bound; a search in work is answered; who sends no end of a head,
    or doesn't read, is let go. Nothing is left to be cancelled by force.
    """
    gate, hold = Gate(), Hold()
    hold.gate.release.set()
    model = ScriptedModel(["x" * LARGE_BYTES, "never"], hold={1: gate})
    world = World(model=model, holds={"vectors.dense": hold}, **PATIENT)
    await world.learn(TEXT)
    with anyio.fail_after(PATIENCE_S):
        async with (
            gateway_server(world) as (server, port, serving),
            connected(port) as reader,
            connected(port) as searcher,
            silent(port) as stuck,
            raw(port) as slow,
        ):
            await stuck.send(question(world))
            await world.registry.arrived.wait()
            await reader.ask(world.token(), QUESTION)
            await gate.reached.wait()
            await slow.send(b"GET /healthz HTTP/1.1\r\n")
            hold.gate = Gate()
            await searcher.send("GET", "/v1/search?query=limit", token=world.token())
            await hold.gate.reached.wait()
            server.handle_exit(signal.SIGTERM, None)
            last = (await reader.all_events())[-1]
            assert (last.name, last.data["code"]) == ("error", "shutting_down")
            hold.gate.release.set()
            assert (await searcher.read_head()).status == 200
            assert (await searcher.json())["results"]
            assert await slow.rest() == b""
            await serving
            with pytest.raises(ConnectionResetError):
                await stuck.rest()
            assert stuck.taken < LARGE_BYTES
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    world.assert_nothing_held()


def question(world: World) -> bytes:
    body = json.dumps({"question": QUESTION}).encode()
    lines = (f"Authorization: Bearer {world.token()}", "Content-Type: application/json")
    return head("POST", "/v1/answers", *lines, f"Content-Length: {len(body)}") + body


async def test_an_app_may_end_right_after_it_has_cut_its_client_off(caplog: pytest.LogCaptureFixture) -> None:
    """The loop hasn't come round to the closed socket yet; nobody has left an answer undone."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if scope["type"] == "http" and connection is not None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            connection.abort()

    with anyio.fail_after(PATIENCE_S):
        async with serving(app) as port, raw(port) as client:
            await client.send(head("GET", "/"))
            await client.rest()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
