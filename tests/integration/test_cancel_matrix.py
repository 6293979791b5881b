"""Every way to end an answer early, in every phase it can be in, over a real socket."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.errors import EmbedderUnavailable, UpstreamFailed, VectorStoreUnavailable
from gateway.stream.session import CloseReason
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected, request
from tests.harness.world import Hold, World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PIECES = ["The limit ", "is ", "42 ", "megabytes ", "[1]."]
PATIENCE_S = 20


@dataclass(frozen=True)
class Phase:
    """Where the answer stands when it is ended. ``streaming``: headers and meta have left."""

    name: str
    streaming: bool
    build: Callable[..., tuple[World, Gate | None]]


def held_part(place: str) -> Callable[..., tuple[World, Gate | None]]:
    def build(**settings: Any) -> tuple[World, Gate | None]:
        hold = Hold()
        return World(model=ScriptedModel(PIECES), holds={place: hold}, **settings), hold.gate

    return build


def held_embedder(**settings: Any) -> tuple[World, Gate | None]:
    gate = Gate()
    return World(model=ScriptedModel(PIECES), embedder=FixedEmbedder(hold=gate), **settings), gate


def held_model(place: int) -> Callable[..., tuple[World, Gate | None]]:
    def build(**settings: Any) -> tuple[World, Gate | None]:
        gate = Gate()
        return World(model=ScriptedModel(PIECES, hold={place: gate}), **settings), gate

    return build


def held_body(**settings: Any) -> tuple[World, Gate | None]:
    return World(model=ScriptedModel(PIECES), **settings), None


PHASES = [
    Phase("identify", False, held_part("verifier.verify")),
    Phase("body", False, held_body),
    Phase("authorize", False, held_part("catalog.tenant_stamp")),
    Phase("bind", False, held_part("catalog.active")),
    Phase("embed", False, held_embedder),
    Phase("dense", False, held_part("vectors.dense")),
    Phase("lexical", False, held_part("vectors.lexical")),
    Phase("recheck", False, held_part("catalog.standings")),
    Phase("statistics", False, held_part("catalog.statistics")),
    Phase("before_headers", True, held_model(-1)),
    Phase("before_first_token", True, held_model(0)),
    Phase("mid_stream", True, held_model(2)),
    Phase("before_the_end", True, held_model(len(PIECES))),
]
by_phase = pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)


@pytest.fixture(autouse=True)
def without_garbage_collection() -> Iterator[None]:
    """What is only freed by the collector counts as leaked here."""
    gc.disable()
    yield
    gc.enable()


async def reach(world: World, wire: Wire, phase: Phase, gate: Gate | None) -> None:
    """Asks, and returns once the answer waits where the phase says."""
    await wire.ask(world.token(), QUESTION, hold_back=5 if gate is None else 0)
    if gate is None:
        await world.registry.arrived.wait()
    else:
        await gate.reached.wait()


async def settled(world: World, before: set[asyncio.Task[Any]]) -> None:
    """Returns once no session and no task is left; then nothing may be held."""
    await world.registry.idle()
    while extra := {task for task in asyncio.all_tasks() - before if not is_loop_watcher(task)}:
        await asyncio.wait(extra)
    world.assert_nothing_held()


def is_loop_watcher(task: asyncio.Task[Any]) -> bool:
    """sse-starlette keeps one task an event loop that watches for the server's exit."""
    return "_shutdown_watcher" in repr(task.get_coro())


Leave = Callable[[Wire], None]
LEAVES: dict[str, Leave] = {"FIN": Wire.close, "RST": Wire.abort}


@by_phase
@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
async def test_a_client_that_leaves_ends_everything_done_for_it(phase: Phase, leave: Leave) -> None:
    """Upstream and store calls are over, every place is free, no task is left."""
    world, gate = phase.build()
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await reach(world, wire, phase, gate)
                leave(wire)
                await settled(world, before)
        if phase.name != "identify":
            assert await last_reason(world, phase) in {None, CloseReason.CLIENT_GONE.value}


async def last_reason(world: World, phase: Phase) -> object:
    """The close reason in the audit trail; None before there was anybody to write down."""
    entries = await world.catalog.entries("acme", 1, "answer")
    return entries[0].details["close_reason"] if entries else None


#: at the other two the stop itself would wait too: it is identified, and its asker's revocations are read
STOPPABLE = [phase for phase in PHASES if phase.name not in {"identify", "authorize"}]


@pytest.mark.parametrize("phase", STOPPABLE, ids=lambda phase: phase.name)
async def test_the_askers_stop_ends_it_with_a_word(phase: Phase) -> None:
    """DELETE from the same asker: 204, then `stopped` as status or as event; nothing stays held."""
    world, gate = phase.build()
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await reach(world, wire, phase, gate)
                path = f"/v1/answers/{world.registry.only_request_id()}"
                head, _ = await request(port, "DELETE", path, token=world.token())
                assert head.status == 204
                assert await how_it_ended(wire, phase) == "stopped"
                wire.close()
                await settled(world, before)


@by_phase
async def test_the_deadline_ends_it_wherever_it_is(phase: Phase) -> None:
    """504 before the stream, `deadline_exceeded` in it; nothing stays held."""
    world, gate = phase.build(total_cap_ms=400)
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await reach(world, wire, phase, gate)
                assert await how_it_ended(wire, phase) == "deadline_exceeded"
                wire.close()
                await settled(world, before)


async def how_it_ended(wire: Wire, phase: Phase) -> str:
    """The code of the problem or of the terminal event; there is exactly one of them."""
    head = await wire.read_head()
    if not phase.streaming:
        assert head.status != 200
        return str((await wire.json())["code"])
    assert head.status == 200
    events = await wire.all_events()
    assert [e.name for e in events if e.name in {"done", "error", "revoked"}] == ["error"]
    assert events[0].name == "meta"
    assert events[-1].data["partial"] is any(e.name == "delta" for e in events)
    return str(events[-1].data["code"])


class FailingPart:
    """A part whose methods raise."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def dense(self, *_: object) -> None:
        raise self.error


FAILURES: dict[str, tuple[Callable[[], World], int | str, str]] = {
    "embedder": (
        lambda: World(embedder=FixedEmbedder(error=EmbedderUnavailable())),
        503,
        "embedder_unavailable",
    ),
    "before_headers": (
        lambda: World(model=ScriptedModel(PIECES, fail={-1: UpstreamFailed()})),
        "error",
        "upstream_failed",
    ),
    "before_first_token": (
        lambda: World(model=ScriptedModel(PIECES, fail={0: UpstreamFailed()})),
        "error",
        "upstream_failed",
    ),
    "mid_stream": (
        lambda: World(model=ScriptedModel(PIECES, fail={2: UpstreamFailed()})),
        "error",
        "upstream_failed",
    ),
    "no_answer_at_all": (
        lambda: World(model=ScriptedModel(["  ", "\n"])),
        "error",
        "upstream_failed",
    ),
    "at_the_end": (
        lambda: World(model=ScriptedModel(PIECES, fail={len(PIECES): UpstreamFailed()})),
        "error",
        "upstream_failed",
    ),
}


@pytest.mark.parametrize(("build", "status", "code"), FAILURES.values(), ids=FAILURES)
async def test_a_failing_part_ends_the_answer_with_its_code(
    build: Callable[[], World], status: int | str, code: str
) -> None:
    """A status before the stream, an `error` event in it, and nothing stays held."""
    world = build()
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                head = await wire.read_head()
                if status == "error":
                    events = await wire.all_events()
                    assert events[-1].name == "error"
                    assert events[-1].data["code"] == code
                else:
                    assert head.status == status
                    assert (await wire.json())["code"] == code
                    assert "retry-after" in head.headers
                wire.close()
                await settled(world, before)


async def test_a_store_that_fails_on_one_route_fails_the_question() -> None:
    """Half a search is no search: 503, no model call."""
    world = World()
    await world.learn(TEXT)
    world.vectors.available = False
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                assert (await wire.read_head()).status == 503
                assert (await wire.json())["code"] == VectorStoreUnavailable.code
    assert world.model.called == 0
    world.assert_nothing_held()


async def test_a_client_that_leaves_while_queued_gives_its_place_in_the_queue_back() -> None:
    """One answer holds the only generation place, a second waits for it and leaves."""
    gate = Gate()
    world = World(
        model=ScriptedModel(PIECES, hold={0: gate}),
        generation_concurrency=1,
        generation_wait_ms=60_000,
        total_cap_ms=60_000,
    )
    await world.learn(TEXT)
    generation = next(b for b in world.services.bulkheads if b.name == "generation")
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as first, connected(port) as second:
                await first.ask(world.token(), QUESTION)
                await gate.reached.wait()
                await second.ask(world.token(), QUESTION)
                while not generation.waiting:
                    await anyio.lowlevel.checkpoint()
                second.abort()
                while generation.waiting:
                    await anyio.lowlevel.checkpoint()
                assert generation.in_use == 1
                gate.release.set()
                events = await first.all_events()
                assert events[-1].name == "done"
            await world.registry.idle()
    world.assert_nothing_held()


@pytest.mark.parametrize("leave", LEAVES.values(), ids=LEAVES)
async def test_a_client_that_never_reads_can_leave_while_a_send_is_blocked(leave: Leave) -> None:
    """The model is held back by the full buffers, and closed when the client goes."""
    flood = ScriptedModel(["x" * 65_536] * 400)
    world = World(model=flood, total_cap_ms=60_000)
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port, receive_buffer=4096) as wire:
                await wire.ask(world.token(), QUESTION)
                await blocked(flood)
                assert flood.produced < 400
                leave(wire)
                await settled(world, before)
    assert flood.produced < 400


async def blocked(model: ScriptedModel) -> None:
    """Returns once the model has produced nothing over many turns of the loop."""
    still, seen = 0, -1
    while still < 2000:
        await anyio.lowlevel.checkpoint()
        still = still + 1 if model.produced == seen and seen > 0 else 0
        seen = model.produced


async def test_two_causes_at_once_still_end_it_once() -> None:
    """Client gone, stop and deadline together: one record, one close of the upstream."""
    gate = Gate()
    world = World(model=ScriptedModel(PIECES, hold={2: gate}))
    await world.learn(TEXT)
    async with serving_world(world) as port:
        before = asyncio.all_tasks()
        with anyio.fail_after(PATIENCE_S):
            async with connected(port) as wire:
                await wire.ask(world.token(), QUESTION)
                await gate.reached.wait()
                principal = await world.verifier.verify(world.token())
                request_id = world.registry.only_request_id()
                wire.abort()
                assert world.registry.stop(principal, request_id)
                world.registry.cancel_all(CloseReason.SHUTTING_DOWN)
                await settled(world, before)
    entries = await world.catalog.entries("acme", 10, "answer")
    assert [entry.details["close_reason"] for entry in entries] == [CloseReason.CLIENT_STOP.value]
    assert world.model.closed == 1
