"""Clients that offer another protocol beside their request: they are answered as if they hadn't."""

import json
import logging

import pytest

from tests.harness.serving import serving_world
from tests.harness.world import World
from tests.integration.raw_client import RawClient, head, raw

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = json.dumps({"question": "What is the upload limit?"}).encode()
#: as Java's HttpClient and ``curl --http2`` do, as browsers do for web sockets, and as nobody should
OFFERS = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
    "websocket": ("Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "twice": ("Connection: upgrade", "Upgrade: a", "UPGRADE: b, c/1"),
}
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(QUESTION), QUESTION)
BODIES = {
    "length": (f"Content-Length: {len(QUESTION)}", QUESTION),
    "chunks": ("Transfer-Encoding: chunked", CHUNKED),
}


@pytest.fixture(params=list(OFFERS.values()), ids=list(OFFERS))
def offer(request: pytest.FixtureRequest) -> tuple[str, ...]:
    offered: tuple[str, ...] = request.param
    return offered


@pytest.mark.parametrize(("framing", "body"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("pieces", [1, 1000])
async def test_a_question_keeps_its_body(
    offer: tuple[str, ...], framing: str, body: bytes, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    """However it comes; the log says nothing of it, and the next one on the connection is answered too."""
    world = World()
    await world.learn(TEXT)
    token = f"Authorization: Bearer {world.token()}"
    lines = (token, "Content-Type: application/json", framing)
    content = head("POST", "/v1/answers", *offer, *lines) + body
    size = -(-len(content) // pieces)
    async with serving_world(world) as port, raw(port) as client:
        for start in range(0, len(content), size):
            await client.send(content[start : start + size])
        await until_end(client)
        await client.send(head("POST", "/v1/answers", "Connection: close", *lines) + body)
        assert b"event: done" in await client.rest()
    said = [record for record in caplog.records if record.name == "uvicorn.error"]
    assert [record for record in said if record.levelno >= logging.WARNING] == []


async def until_end(client: RawClient) -> None:
    """Reads a stream up to its last chunk."""
    assert (await client.head()).status == 200
    content = b""
    while not content.endswith(b"\r\n0\r\n\r\n"):
        content += await client.take(1)
    assert b"event: done" in content


async def test_a_request_without_a_body_is_answered(offer: tuple[str, ...]) -> None:
    """Again and again on one connection, also where its parser has begun anew."""
    async with serving_world(World()) as port, raw(port) as client:
        for lines in (offer, (), offer, offer):
            await client.send(head("GET", "/healthz", *lines))
            answer = await client.answer()
            assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok"})
            assert "upgrade" not in answer.headers


async def test_what_is_read_again_counts_once(offer: tuple[str, ...]) -> None:
    """A head that is allowed still is, and one that is too large doesn't pass."""
    large = "x: " + "y" * 20_000
    async with serving_world(World()) as port:
        async with raw(port) as client:
            await client.send(head("GET", "/healthz", *offer, large))
            assert (await client.answer()).status == 200
            await client.send(head("GET", "/healthz", *offer, large, large))
            assert (await client.answer()).status == 431


async def test_a_body_with_two_lengths_is_refused_whatever_is_offered(offer: tuple[str, ...]) -> None:
    """Nothing is smuggled past the parser by reading a head twice."""
    lines = (*offer, f"Content-Length: {len(QUESTION)}", "Transfer-Encoding: chunked")
    async with serving_world(World()) as port, raw(port) as client:
        await client.send(head("POST", "/v1/answers", *lines) + CHUNKED)
        answer = await client.answer()
        assert (answer.status, answer.code) == (400, "malformed_request")


@pytest.mark.parametrize("target", ["/v1/answers", "example.org:443"])
async def test_nobody_is_connected_to_anybody(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """CONNECT is refused, and nothing behind it is read."""
    async with serving_world(World()) as port, raw(port) as client:
        await client.send(head("CONNECT", target) + head("GET", "/healthz"))
        content = await client.rest()
        assert content.count(b"HTTP/1.1 ") == 1
        assert content.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 405 "))
    assert "pgrade" not in caplog.text
