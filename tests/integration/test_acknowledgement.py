"""A client says that it saw the end of its answer: once, its own only, and whatever that end was."""

import asyncio
import json
import time

import anyio
import anyio.to_thread
import pytest

from gateway.access.principal import Principal
from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.client import GatewayClient, StreamEvent
from gateway.errors import PrincipalRevoked
from gateway.stream.acknowledgement import EndedAnswers
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import Meta, Revoked
from gateway.stream.revocation import RevocationKind
from gateway.stream.session import CloseReason, Session
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, ask, connected, request
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
JSON = {"Content-Type": "application/json"}
META = Meta("req", "trace", "kb", "rev", 1, "space", "model", False, ())


async def ack(port: int, request_id: str, token: str, body: bytes = b"{}") -> tuple[int, str]:
    path = f"/v1/answers/{request_id}/ack"
    head, content = await request(port, "POST", path, token=token, body=body, headers=JSON)
    return head.status, json.loads(content)["code"] if content else ""


def measured(world: World, name: str) -> float:
    return world.services.metrics.registry.get_sample_value(f"{name}_count") or 0.0


async def test_an_end_is_acknowledged_once_by_its_asker() -> None:
    """204, then 404 as for anybody else's and an unknown one; each success is measured."""
    world = World()
    await world.learn(TEXT)
    async with serving_world(world) as port:
        head, _ = await ask(port, world.token(), QUESTION)
        request_id = head.headers["x-request-id"]
        for token in (world.token(subject="bob"), world.token("globex")):
            assert await ack(port, request_id, token) == (404, "not_found")
        assert await ack(port, request_id, world.token(), b'{"seen": true}') == (400, "unknown_field")
        assert await ack(port, request_id, world.token()) == (204, "")
        assert await ack(port, request_id, world.token()) == (404, "not_found")
        assert await ack(port, "none", world.token()) == (404, "not_found")
    assert measured(world, "gateway_client_ack_seconds") == 1
    assert measured(world, "gateway_first_token_seconds") == 1
    assert measured(world, "gateway_completion_seconds") == 1
    assert measured(world, "gateway_cancel_seconds") == 0


async def test_what_has_not_ended_has_no_end_to_be_seen() -> None:
    """404 while it runs, and after its client has left; the cancel is measured."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        async with connected(port) as wire:
            request_id = await begun(wire, world, gate)
            assert (await ack(port, request_id, world.token()))[0] == 404
        await world.registry.idle()
        assert (await ack(port, request_id, world.token()))[0] == 404
    assert measured(world, "gateway_cancel_seconds") == 1


async def begun(wire: Wire, world: World, gate: Gate) -> str:
    await wire.ask(world.token(), QUESTION)
    with anyio.fail_after(20):
        await gate.reached.wait()
    return world.registry.only_request_id()


async def test_a_revoked_asker_is_refused_here_too() -> None:
    """Whatever token he brings, at this door as at every other."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}), requests_per_minute=1)
    await world.learn(TEXT)
    async with serving_world(world) as port, connected(port) as wire:
        request_id = await begun(wire, world, gate)
        await world.catalog.revoke("acme", RevocationKind.USER, "ann", "a test", "op")
        world.services.feed.wake()
        with anyio.fail_after(20):
            assert (await wire.all_events())[-1].name == "revoked"
        assert await ack(port, request_id, world.token()) == (403, "principal_revoked")


async def test_the_client_says_so_by_itself() -> None:
    """Once it has given the last event to its caller."""
    world = World()
    await world.learn(TEXT)
    async with serving_world(world) as port:
        events = await asked(port, world.token())
    assert events[-1].name == "done"
    assert measured(world, "gateway_client_ack_seconds") == 1


async def asked(port: int, token: str) -> list[StreamEvent]:
    def ask_it() -> list[StreamEvent]:
        with GatewayClient(f"http://127.0.0.1:{port}", token) as client:
            return list(client.ask(QUESTION))

    with anyio.fail_after(20):
        return await anyio.to_thread.run_sync(ask_it)


@pytest.mark.parametrize("reply", [b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", b"nonsense", b""])
async def test_what_becomes_of_it_is_no_error_of_the_client(reply: bytes) -> None:
    """The answer was whole; its asker hears nothing of a server that doesn't take the word."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if b"content-length: " in heads[-1].lower():  # closing over unread bytes would reset
            await reader.readexactly(int(heads[-1].lower().split(b"content-length: ")[1].split()[0]))
        writer.write(reply if heads[1:] else STREAM)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        events = await asked(server.sockets[0].getsockname()[1], "token")
    assert [event.name for event in events] == ["revoked"]
    assert [head.split()[1] for head in heads] == [b"/v1/answers", b"/v1/answers/req_1/ack"]


STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: req_1\r\nConnection: close\r\n\r\n"
    b"event: revoked\nid: 1\ndata: {}\n\n"
)


# -- how much is remembered -----------------------------------------------------------------------------


def principal(subject: str = "ann") -> Principal:
    return Principal("acme", subject, frozenset(), frozenset({"ask"}), time.time() + 600)


def ended(name: str, reason: CloseReason = CloseReason.CLIENT_STOP, *, opened: bool = True) -> Session:
    session = Session(name, EventChannel(1000, 0, 1))
    session.principal = principal()
    if opened:
        session.open(META)
    if reason is CloseReason.REVOKED:
        session.revoke(Revoked("user", 1.0), PrincipalRevoked())
    else:
        session.cancel(reason)
    return session


async def test_only_so_many_ends_are_remembered_for_so_long() -> None:
    """The oldest go first; what is acknowledged makes room."""
    now = 100.0
    answers = EndedAnswers(keep_s=10, most=3, clock=lambda: now)
    for name in "abcd":
        answers.remember(ended(name))
    assert len(answers) == 3
    assert answers.acknowledge(principal(), "a") is None
    now = 104.0
    assert answers.acknowledge(principal(), "b") == 4.0
    assert len(answers) == 2
    now = 110.0
    assert answers.acknowledge(principal(), "c") is None
    answers.remember(ended("e"))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("reason", "opened", "remembered"),
    [
        (CloseReason.REVOKED, True, 1),
        (CloseReason.SHUTTING_DOWN, True, 1),
        (CloseReason.CLIENT_GONE, True, 0),
        (CloseReason.SLOW_READER, True, 0),
        (CloseReason.CLIENT_STOP, False, 0),
    ],
)
async def test_an_end_that_was_told_is_one(reason: CloseReason, opened: bool, remembered: int) -> None:
    """As an event of the stream; a problem is an answer of its own, and nobody saw the end of the others."""
    answers = EndedAnswers()
    answers.remember(ended("a", reason, opened=opened))
    assert len(answers) == remembered
