"""Moderation over real sockets: an endpoint that is odd or down, and answers that wait for its word."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.adapters.embedded.phrases import PhraseModerator
from gateway.adapters.openai.model import OpenAIModel
from gateway.adapters.openai.moderation import OpenAIModerator
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, ModerationUnavailable
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.serving import serving_world
from tests.harness.wire import ask, connected, request
from tests.harness.world import World

PATIENCE_S = 20
LONG_MS = 60_000
KNOWN = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes."}
QUESTION = "What is the upload limit?"
SECRET = "sk-very-secret"
#: nothing here is about how fast a busy machine is
PATIENT: dict[str, Any] = {
    "total_cap_ms": LONG_MS,
    **{f"{cap}_cap_ms": 15_000 for cap in ("embed", "retrieval", "catalog")},
    **{f"{stage}_wait_ms": 15_000 for stage in ("embedding", "retrieval")},
}


@asynccontextmanager
async def moderator_at(base_url: str, api_key: str | None = None) -> AsyncIterator[OpenAIModerator]:
    moderator = OpenAIModerator(base_url, "judge", api_key, max_sensitivity=1, connect_cap_ms=5000)
    try:
        yield moderator
    finally:
        await moderator.aclose()


@asynccontextmanager
async def gateway(stub: ModelStub, mode: str, cap_ms: int = LONG_MS) -> AsyncIterator[tuple[World, int]]:
    """Its model and its moderator are both at the stub."""
    model = OpenAIModel(
        stub.base_url,
        "stub",
        None,
        max_sensitivity=1,
        connect_cap_ms=5000,
        first_token_cap_ms=LONG_MS,
        idle_cap_ms=LONG_MS,
    )
    async with moderator_at(stub.base_url) as moderator:
        world = World(model=model, moderator=moderator, moderation=mode, moderation_cap_ms=cap_ms, **PATIENT)
        await world.learn(KNOWN)
        async with serving_world(world) as port:
            yield world, port
            await world.registry.idle()
            world.assert_nothing_held()
    await model.aclose()


# -- the endpoint ------------------------------------------------------------------------------------

DOUBTFUL: dict[str, dict[str, Any]] = {
    **{
        str(status): {"error_before": {"status": status, "body": {"results": [{"flagged": False}]}}}
        for status in (202, 301, 401, 404, 429, 500, 503)
    },
    "no results": {"verdict": {"results": []}},
    "two results": {"verdict": {"results": [{"flagged": False}] * 2}},
    "no flag": {"verdict": {"results": [{"categories": {}}]}},
    "a flag that is a word": {"verdict": {"results": [{"flagged": "no"}]}},
    "a flag that is null": {"verdict": {"results": [{"flagged": None}]}},
    "a list": {"verdict": [1]},
    "odd categories": {"verdict": {"results": [{"flagged": False, "categories": [1]}]}},
    "far too much": {"verdict": {"results": [{"flagged": False}], "more": "x" * 1_000_000}},
}


@pytest.mark.parametrize("script", DOUBTFUL.values(), ids=DOUBTFUL)
async def test_whatever_is_no_clear_word_is_none(script: dict[str, Any]) -> None:
    """A text passes only when the endpoint says so; nothing of what it wrote is shown."""
    async with serve_stub() as stub, moderator_at(stub.base_url, SECRET) as moderator:
        stub.script_model("judge", **script)
        with anyio.fail_after(PATIENCE_S), pytest.raises(ModerationUnavailable) as caught:
            await moderator.check("harmless", Deadline.after(LONG_MS))
    assert SECRET not in f"{caught.value!r} {caught.value.detail}"
    assert len(caught.value.detail) < 80


async def test_categories_are_told_without_any_free_text() -> None:
    """Only those that were hit, and only what reads like a name."""
    categories = {"harm/self": True, "hate": False, "the text was: x": True, "v" * 90: True, "odd": "yes"}
    async with serve_stub() as stub, moderator_at(stub.base_url) as moderator:
        stub.script_model("judge", verdict={"results": [{"flagged": True, "categories": categories}]})
        verdict = await moderator.check("x", Deadline.after(LONG_MS))
    assert (verdict.flagged, verdict.categories) == (True, ("harm/self",))


async def test_a_silent_endpoint_costs_no_more_than_the_deadline() -> None:
    """The call is closed, and the next one works."""
    async with serve_stub() as stub, moderator_at(stub.base_url) as moderator:
        stub.script_model("judge", gate_after_tokens=0)
        with anyio.fail_after(PATIENCE_S):
            with pytest.raises(DeadlineExceeded) as caught:
                await moderator.check("x", Deadline.after(50))
            await stub.until(lambda s: s.calls[0].closed_at is not None)
            assert (caught.value.stage, stub.calls[0].reason) == ("moderation", "client_gone")
            stub.open_gate()
            assert not (await moderator.check("x", Deadline.after(LONG_MS))).flagged


async def test_the_key_goes_along_and_readiness_sees_a_closed_door() -> None:
    """Whether the endpoint is there at all."""
    async with serve_stub() as stub, moderator_at(stub.base_url, SECRET) as moderator:
        await moderator.check("x", Deadline.after(LONG_MS))
        assert stub.calls[0].authorization == f"Bearer {SECRET}"
        assert stub.calls[0].asked == ["input", "model"]
        assert await moderator.ping()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with moderator_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1") as moderator:
            assert not await moderator.ping()
            with pytest.raises(ModerationUnavailable):
                await moderator.check("x", Deadline.after(LONG_MS))


async def test_a_connection_that_died_meanwhile_is_replaced_once() -> None:
    """One that was kept open may be closed by the time it is used; an endpoint that always hangs up fails."""
    hung_up = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hung_up
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        if hung_up < hang_ups:
            hung_up += 1
        else:
            body = b'{"results": [{"flagged": true}]}'
            head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            writer.write(head % len(body) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, moderator_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as moderator:
        hang_ups = 1
        assert (await moderator.check("x", Deadline.after(LONG_MS))).flagged
        hang_ups = 3
        with pytest.raises(ModerationUnavailable):
            await moderator.check("x", Deadline.after(LONG_MS))
    assert hung_up == 3


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "http://user:password@h/v1"])
def test_an_address_that_can_not_be_used_is_refused_at_once(url: str) -> None:
    """Without a word of it."""
    with pytest.raises(ConfigurationError) as caught:
        OpenAIModerator(url, None, None, max_sensitivity=1, connect_cap_ms=1)
    assert caught.value.reason == "moderation_base_url_invalid"
    assert "password@" not in caught.value.detail


# -- the file of phrases -----------------------------------------------------------------------------

BAD_FILES = {
    "missing": None,
    "empty": b"# nothing\n\n",
    "no category": b"harm: poison\nweapon\n",
    "no phrase": b"harm:\n",
    "not text": b"harm: \xff\xfe",
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_phrases_that_can_not_be_read_stop_the_start(content: bytes | None, tmp_path: Path) -> None:
    """A gateway that would let everything pass must not start; none of the phrases are shown."""
    path = tmp_path / "phrases.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        PhraseModerator.load(path)
    assert caught.value.reason == "moderation_phrases_invalid"
    assert "weapon" not in caught.value.detail


@pytest.mark.parametrize("text", ["Project OSPREY", "project\n  osprey!", "ｐｒｏｊｅｃｔ Osprey"])
async def test_a_phrase_is_found_however_it_is_written(text: str) -> None:
    """In any case, width and spacing."""
    verdict = await PhraseModerator({"Project Osprey": "secret"}).check(text, Deadline.after(LONG_MS))
    assert verdict.categories == ("secret",)


# -- whole answers -----------------------------------------------------------------------------------

TOKENS = ["The ", "limit is 42 [1]. ", "Drink ", "the ", "poison. ", "And ", "more."]


@pytest.mark.parametrize(("mode", "left"), [("segmented", "The limit is 42 [1]."), ("buffered", "")])
async def test_a_blocked_answer_ends_with_its_code_and_closes_the_model(mode: str, left: str) -> None:
    """No letter of it leaves; the model, which would go on for ever, is hung up on where it can be."""
    async with serve_stub() as stub, gateway(stub, mode) as (world, port):
        endless = {"stall_after_tokens": len(TOKENS)} if mode == "segmented" else {}
        stub.script(tokens=TOKENS, **endless)
        stub.script_model("judge", flag=["poison"])
        with anyio.fail_after(PATIENCE_S):
            head, events = await ask(port, world.token(), QUESTION)
            assert (head.status, events[-1].name) == (200, "error")
            assert events[-1].data["code"] == "answer_blocked"
            assert events[-1].data["partial"] is bool(left)
            assert "".join(e.data["text"] for e in events if e.name == "delta") == left
            await stub.until(lambda s: all(call.closed_at is not None for call in s.calls))
        chat = stub.calls[0]
        assert chat.reason == ("client_gone" if mode == "segmented" else "finished")
        body = (await request(port, "GET", "/metrics"))[1].decode()
        checks = len([call for call in stub.calls if call.kind == "moderations"])
        assert f'gateway_model_calls_total{{kind="moderation"}} {checks}.0' in body
        assert f'gateway_stage_seconds_count{{stage="moderate"}} {checks}.0' in body


FAILING: dict[str, tuple[dict[str, Any], str]] = {
    "down": ({"error_before": {"status": 500}}, "moderation_unavailable"),
    "silent": ({"gate_after_tokens": 0}, "deadline_exceeded"),
}


@pytest.mark.parametrize(("script", "code"), FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("mode", ["segmented", "buffered"])
async def test_no_answer_leaves_while_nobody_can_judge_it(
    mode: str, script: dict[str, Any], code: str
) -> None:
    """Fails closed, with a code that says why, and doesn't ask the model again."""
    cap_ms = 200 if "gate_after_tokens" in script else LONG_MS
    async with serve_stub() as stub, gateway(stub, mode, cap_ms) as (world, port):
        stub.script(tokens=TOKENS)
        stub.script_model("judge", **script)
        with anyio.fail_after(PATIENCE_S):
            _, events = await ask(port, world.token(), QUESTION)
        assert [event.name for event in events] == ["meta", "error"]
        assert (events[-1].data["code"], events[-1].data["partial"]) == (code, False)
        assert len([call for call in stub.calls if call.kind == "chat"]) == 1


@pytest.mark.parametrize("mode", ["segmented", "buffered"])
async def test_a_client_that_leaves_while_its_answer_is_judged_closes_both_calls(mode: str) -> None:
    """The moderator's and the model's."""
    async with serve_stub() as stub, gateway(stub, mode) as (world, port):
        stub.script(tokens=TOKENS)
        stub.script_model("judge", gate_after_tokens=0)
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                await stub.until(lambda s: any(call.kind == "moderations" for call in s.calls))
                wire.abort()
            await stub.until(lambda s: all(call.closed_at is not None for call in s.calls))
            await world.registry.idle()
        judged = [call for call in stub.calls if call.kind == "moderations"]
        assert [call.reason for call in judged] == ["client_gone"]
