"""Clients that send badly: each ends with a clear status or a closed socket, and nothing is left of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.lowlevel
import pytest

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.stream.session import CloseReason
from tests.harness.serving import serving_world
from tests.harness.world import Hold, World
from tests.integration.raw_client import PATIENCE_S, Answer, RawClient, dropped, head, raw

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = json.dumps({"question": "What is the upload limit?"}).encode()
HURRY_HEADS: dict[str, Any] = {"head_timeout_s": 0.3, "body_timeout_s": 60}
HURRY_BODIES: dict[str, Any] = {"head_timeout_s": 60, "body_timeout_s": 0.3}
MANY = "".join(f"x-{number}: 1\r\n" for number in range(200)).encode()


@asynccontextmanager
async def gateway(world: World) -> AsyncIterator[int]:
    """Its port; in the end no session, task, place or connection of a client may be left."""
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        yield port
        await world.registry.idle()
        await dropped(port)
        while extra := {
            task for task in asyncio.all_tasks() - before if "_shutdown_watcher" not in repr(task)
        }:
            await asyncio.wait(extra, timeout=PATIENCE_S)
        world.assert_nothing_held()


def question(world: World, *lines: str, body: bytes = QUESTION, length: bool = True) -> bytes:
    """A whole question, or the beginning of one."""
    given = [f"Authorization: Bearer {world.token()}", "Content-Type: application/json", *lines]
    if length:
        given.append(f"Content-Length: {len(QUESTION)}")
    return head("POST", "/v1/answers", *given) + body


async def refused(client: RawClient) -> Answer:
    """The one answer of a connection that is closed after it."""
    answer = await client.answer()
    assert answer.headers["connection"] == "close"
    assert answer.headers["content-type"] == "application/problem+json"
    assert await client.rest() == b""
    return answer


# -- heads -------------------------------------------------------------------------------------------

SLOW_HEADS = {
    "the beginning of a line": b"GET /heal",
    "a line short": head("GET", "/healthz")[:-2],
    "line ends alone": b"\r\n",
}


@pytest.mark.parametrize("content", SLOW_HEADS.values(), ids=SLOW_HEADS)
async def test_a_head_that_does_not_come_to_an_end_is_too_slow(content: bytes) -> None:
    """408, also for a second request on a connection."""
    async with gateway(World(**HURRY_HEADS)) as port:
        async with raw(port) as client:
            await client.send(content)
            assert (await refused(client)).code == "request_too_slow"
        async with raw(port) as client:
            await client.send(head("GET", "/healthz"))
            assert (await client.answer()).status == 200
            await client.send(content)
            assert (await refused(client)).status == 408


async def test_sending_ever_a_little_of_a_head_helps_nobody() -> None:
    """The time is for all of it; a connection without a word just ends."""
    async with gateway(World(**HURRY_HEADS)) as port:
        async with raw(port) as client:
            await client.send(b"GET /healthz HTTP/1.1\r\n")
            await client.drip(b"a: b\r\n", PATIENCE_S)
        async with raw(port) as client:
            assert await client.rest() == b""


LARGE_HEADS = {
    "one field": b"GET /healthz HTTP/1.1\r\na: " + b"b" * 40_000 + b"\r\n\r\n",
    "one field without an end": b"GET /healthz HTTP/1.1\r\na: " + b"b" * 40_000,
    "many fields": b"GET /healthz HTTP/1.1\r\n" + MANY + b"\r\n",
    "a path": b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("content", LARGE_HEADS.values(), ids=LARGE_HEADS)
async def test_a_large_head_is_refused(content: bytes) -> None:
    """431, whether its end comes or not."""
    async with gateway(World()) as port, raw(port) as client:
        await client.send(content)
        answer = await refused(client)
        assert (answer.status, answer.code) == (431, "head_too_large")


async def test_what_is_not_http_is_told_so() -> None:
    """400 in the form of every problem; a TLS hello is no exception."""
    for content in (b"\x16\x03\x01\x02\x00\x01\x00", b"BREW /pot HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n"):
        async with gateway(World()) as port, raw(port) as client:
            await client.send(content)
            answer = await refused(client)
            assert (answer.status, answer.code) == (400, "malformed_request")


# -- bodies ------------------------------------------------------------------------------------------

SLOW_BODIES = {
    "a byte short": ({}, QUESTION[:-1]),
    "chunks that stop": ({"length": False}, b"5\r\nabcde\r\n"),
}


@pytest.mark.parametrize(("how", "body"), SLOW_BODIES.values(), ids=SLOW_BODIES)
async def test_a_body_that_stops_is_too_slow(how: dict[str, bool], body: bytes) -> None:
    """408; the place that its session had is free again."""
    world = World(**HURRY_BODIES)
    async with gateway(world) as port, raw(port) as client:
        lines = [] if how.get("length", True) else ["Transfer-Encoding: chunked"]
        await client.send(question(world, *lines, body=body, **how))
        answer = await refused(client)
        assert (answer.status, answer.code) == (408, "request_too_slow")


async def test_a_body_that_trickles_is_too_slow() -> None:
    """A byte now and then is not enough, in chunks or not."""
    world = World(**HURRY_BODIES)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world, "Transfer-Encoding: chunked", body=b"", length=False))
        await client.drip(b"1\r\n \r\n", PATIENCE_S)


async def test_chunks_without_an_end_are_too_large() -> None:
    """413 as soon as they are; whoever goes on sending is cut off."""
    world = World(**HURRY_HEADS)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world, "Transfer-Encoding: chunked", body=b"", length=False))
        chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
        await client.send(chunk * 5)
        answer = await client.answer()
        assert (answer.status, answer.code) == (413, "body_too_large")
        await client.flood(chunk)


FRAMINGS = {
    "an extension of a chunk": b"1;" + b"a" * 65_536,
    "a trailer": b"0\r\na: " + b"b" * 65_536,
    "many trailers": b"0\r\n" + MANY * 400,
}


@pytest.mark.parametrize("content", FRAMINGS.values(), ids=FRAMINGS)
async def test_framing_without_an_end_is_cut_off(content: bytes) -> None:
    """It isn't a body, so no limit on bodies sees it."""
    world = World(**HURRY_HEADS)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world, "Transfer-Encoding: chunked", body=b"", length=False))
        await client.send(content)
        await client.flood(content[-1000:])


async def test_a_client_is_told_to_go_on_when_it_waits_for_that() -> None:
    """Expect: 100-continue; the body that comes then is answered."""
    world = World()
    await world.learn(TEXT)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world, "Expect: 100-continue", "Connection: close", body=b""))
        assert (await client.answer()).status == 100
        await client.send(QUESTION)
        assert b"event: done" in await client.rest()


async def test_a_body_for_a_question_without_a_token_may_not_go_on_for_ever() -> None:
    """401 comes before its end, and its connection doesn't outlive the answer for long."""
    async with gateway(World(**HURRY_HEADS)) as port, raw(port) as client:
        await client.send(head("POST", "/v1/documents", "Content-Length: 1000000000"))
        assert (await client.answer()).status == 401
        await client.flood(b" " * 65_536)


# -- several requests at once, and a client that has said all ----------------------------------------


async def test_a_request_behind_one_that_runs_is_not_read() -> None:
    """The first is answered whole and its connection ends: whoever sent more asks again."""
    world = World()
    await world.learn(TEXT)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world) + head("GET", "/healthz") * 1000)
        content = await client.rest()
        assert content.count(b"HTTP/1.1 ") == 1
        assert b"event: done" in content
        assert content.endswith(b"0\r\n\r\n")


async def test_an_answer_takes_its_time_whatever_came_with_the_question() -> None:
    """The time for a body ends with the body; another client's, which is late, shows that it has passed."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}), **HURRY_BODIES)
    await world.learn(TEXT)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world) + head("GET", "/healthz"))
        await gate.reached.wait()
        async with raw(port) as late:
            await late.send(question(world, body=QUESTION[:-1]))
            assert (await refused(late)).status == 408
        gate.release.set()
        assert b"event: done" in await client.rest()


@pytest.mark.parametrize("behind", [head("GET", "/healthz"), b"\x16\x03 no request at all"])
async def test_a_client_that_sends_more_and_leaves_is_seen_leaving(behind: bytes) -> None:
    """Its answer ends at once, whatever it has sent behind its question."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}))
    await world.learn(TEXT)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world))
        await gate.reached.wait()
        (session,) = world.registry.of_tenant("acme")
        await client.send(behind)
        client.close()
        await world.registry.idle()
        assert session.close_reason is CloseReason.CLIENT_GONE


async def test_a_client_that_has_said_all_still_gets_a_short_answer() -> None:
    """Half-close is no farewell where the answer is under way anyway."""
    hold = Hold()
    hold.gate.release.set()
    world = World(holds={"vectors.dense": hold})
    await world.learn(TEXT)
    hold.gate = Gate()
    async with gateway(world) as port, raw(port) as client:
        token = f"Authorization: Bearer {world.token()}"
        await client.send(head("GET", "/v1/search?query=limit", token))
        client.half_close()
        await hold.gate.reached.wait()
        for _ in range(100):  # turns of the loop, in which the server sees the end of what comes
            await anyio.lowlevel.checkpoint()
        hold.gate.release.set()
        answer = await client.answer()
        assert answer.status == 200
        assert json.loads(answer.body)["results"]
        assert await client.rest() == b""


async def test_a_half_closed_stream_ends() -> None:
    """Nothing tells it from a client that has left, and nobody pays a model for one that has."""
    gate = Gate()
    world = World(model=ScriptedModel(["The limit ", "is 42 [1]."], hold={1: gate}))
    await world.learn(TEXT)
    async with gateway(world) as port, raw(port) as client:
        await client.send(question(world))
        await gate.reached.wait()
        (session,) = world.registry.of_tenant("acme")
        client.half_close()
        content = await client.rest()
        assert session.close_reason is CloseReason.CLIENT_GONE
        assert b"event: done" not in content


async def test_there_are_only_so_many_connections() -> None:
    """One too many hears 503 and is closed; the next one after an end is served."""
    world = World(max_connections=2)
    async with gateway(world) as port:
        async with raw(port) as first, raw(port) as second:
            for client in (first, second):
                await client.send(head("GET", "/healthz"))
                assert (await client.answer()).status == 200
            async with raw(port) as third:
                answer = await refused(third)
                assert (answer.status, answer.code) == (503, "overloaded")
                assert answer.headers["retry-after"] == "1"
        await dropped(port)
        async with raw(port) as client:
            await client.send(head("GET", "/healthz"))
            assert (await client.answer()).status == 200


# -- methods -----------------------------------------------------------------------------------------

ALLOWED = {
    "/v1/documents": "GET, HEAD, POST, OPTIONS",
    "/v1/documents/d": "GET, HEAD, DELETE, OPTIONS",
    "/v1/answers": "POST, OPTIONS",
    "/v1/revocations": "GET, HEAD, POST, OPTIONS",
    "/static/chat.js": "GET, HEAD, OPTIONS",
    "/": "GET, HEAD, OPTIONS",
}


@pytest.mark.parametrize(("path", "allowed"), ALLOWED.items())
async def test_a_wrong_method_is_told_every_right_one(path: str, allowed: str) -> None:
    """405 with a whole Allow; OPTIONS says the same and nothing more."""
    async with gateway(World()) as port, raw(port) as client:
        await client.send(head("PATCH", path))
        answer = await client.answer()
        assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", allowed)
        await client.send(head("OPTIONS", path))
        answer = await client.answer()
        assert (answer.status, answer.headers["allow"]) == (204, allowed)
        assert not {name for name in answer.headers if name.startswith("access-control")}


async def test_head_is_get_without_its_body() -> None:
    """The same head, and the connection stays in step."""
    async with gateway(World()) as port, raw(port) as client:
        for path in ("/healthz", "/", "/static/chat.js"):
            await client.send(head("GET", path))
            whole = await client.answer()
            await client.send(head("HEAD", path))
            got = await client.head()
            assert (got.status, got.headers["content-length"]) == (200, str(len(whole.body)))
