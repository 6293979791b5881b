"""Whatever text a model writes arrives at the client unchanged: line ends, emoji, very long lines.

Over twins alone: between the model and the client there is no other part. ``test_model_endpoint`` sends texts
through both sides' processes.
"""

import anyio
import anyio.to_thread
import pytest

from gateway.adapters.memory.models import ScriptedModel
from gateway.client import GatewayClient, StreamEvent
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import World

QUESTION = "What is the upload limit?"
LIMITS = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
PATIENCE_S = 60

PIECES: dict[str, list[str]] = {
    "LF": ["one\ntwo", "\n", "\n\nthree\n"],
    "CRLF": ["one\r\ntwo\r\n\r\nthree", "\r\n"],
    "CR": ["one\rtwo\r\rthree", "\r", "four"],
    "CRLF over two pieces": ["one\r", "\ntwo", "\r", "\n\r", "\n"],
    "a blank event": ["a\n\ndata: forged\n\nevent: done\ndata: {}\n\nb"],
    "a field": ["data: x", "\nid: 99\nevent: revoked\n: comment\nretry: 1\n"],
    "other line ends": ["a\u2028b\u2029c\u0085d\x0be\x0cf"],
    "controls": ["tab\tnul\0bell\x07escape\x1b[31m\x7f"],
    "byte order mark": ["\ufeffa\ufeff"],
    "emoji": ["👩\u200d👩\u200d👧", "🇩🇪", "e\u0301", "🏴\U000e0067\U000e007f"],
    "Chinese": ["上传限制是 42 兆字节。", "配额", "按商户计算"],
    "right to left": ["abc \u202eתוכן\u202c def"],
    "quotes and backslashes": ['"a" \\ \\" \\n \\u0041 </script> <!--'],
    "JSON": ['{"event": "done"}', '{"a": {"b": 1}}x'],
    "blanks": [" ", "  a", "\t", " b "],
    "single characters": list("The limit is 42 megabytes.\r\n👍 上"),
    "a line of 300 kB": ["x" * 300_000],
    "a line of 300 kB in Chinese": ["上" * 100_000],
    "300 kB in small pieces": ["0123456789\r\n" * 10] * 2_500,
}


async def over_the_wire(world: World, port: int) -> list[StreamEvent]:
    async with connected(port) as wire:
        await wire.ask(world.token(), QUESTION)
        return await wire.all_events()


async def over_the_client(world: World, port: int) -> list[StreamEvent]:
    def ask() -> list[StreamEvent]:
        with GatewayClient(f"http://127.0.0.1:{port}", world.token()) as client:
            return list(client.ask(QUESTION, knowledge_base="handbook"))

    return await anyio.to_thread.run_sync(ask)


@pytest.mark.parametrize("ask", [over_the_wire, over_the_client])
@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
async def test_the_client_reassembles_the_exact_text(pieces: list[str], ask: object) -> None:
    """Every character, in order; nothing in a text ever becomes an event or a field of its own."""
    assert callable(ask)
    world = World(model=ScriptedModel(pieces), total_cap_ms=60_000)
    await world.learn(LIMITS)
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            events = await ask(world, port)
    deltas = [event for event in events if event.name == "delta"]
    assert "".join(event.data["text"] for event in deltas) == "".join(pieces)
    assert [event.name for event in events] == ["meta", *["delta"] * len(deltas), "done"]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].data["status"] == "ANSWERED"


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
async def test_an_event_is_one_line_of_data(pieces: list[str]) -> None:
    """On the wire each block is event, id and one data line, ended by a blank line; no CR anywhere."""
    world = World(model=ScriptedModel(pieces), total_cap_ms=60_000)
    await world.learn(LIMITS)
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                raw = await wire.body()
    assert b"\r" not in raw
    blocks = raw.removesuffix(b"\n\n").split(b"\n\n")
    for number, block in enumerate(blocks, start=1):
        names = [line.partition(b": ")[0] for line in block.split(b"\n")]
        assert names == [b"event", b"id", b"data"]
        assert b"id: %d\n" % number in block


async def test_the_marker_of_no_support_never_reaches_the_client() -> None:
    """In whatever pieces it comes, alone it is a refusal without a single delta."""
    marker = "[[NO_SUPPORT]]"
    for pieces in (list(marker), [marker], [" ", marker, "\n"], [marker[:7], marker[7:]]):
        world = World(model=ScriptedModel(pieces))
        await world.learn(LIMITS)
        async with serving_world(world) as port:
            with anyio.fail_after(PATIENCE_S):
                events = await over_the_wire(world, port)
        assert [event.name for event in events] == ["meta", "done"]
        assert events[-1].data["reasons"] == ["MODEL_FOUND_NO_SUPPORT"]
        assert events[-1].data["usage"]["output_tokens"] == len(pieces)
