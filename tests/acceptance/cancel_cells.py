"""The cancel matrix: each cause against each phase of an answer, and how a cell is brought about."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from gateway.adapters.memory.models import FixedEmbedder, Gate, ScriptedModel
from gateway.adapters.openai.model import OpenAIModel
from gateway.adapters.rerank.endpoint import RerankEndpoint
from gateway.admission.bulkhead import Bulkhead, Permit
from gateway.context import Deadline
from gateway.errors import EmbedderUnavailable, UpstreamFailed
from gateway.stream.revocation import RevocationKind
from gateway.stream.session import CloseReason, Session
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected, request
from tests.harness.world import Hold, World, open_gate

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
PIECES = ("The limit ", "is ", "42 ", "megabytes ", "[1].")

PHASES = (
    *("queued", "embedding", "retrieving", "reranking"),
    *("pre_token", "mid_stream", "blocked_send", "finished"),
)
CAUSES = (
    *("FIN", "RST", "half_close", "deadline", "idle"),
    *("revoke", "upstream_error", "client_stop", "SIGTERM"),
)
#: the phases in which headers and ``meta`` have left
STREAMING = frozenset({"pre_token", "mid_stream", "blocked_send", "finished"})

_NO_CALL = "only a call of the model has an idle limit, and none has begun"
#: cells that can't exist, each with the reason
IMPOSSIBLE = {
    **{("idle", phase): _NO_CALL for phase in ("queued", "embedding", "retrieving", "reranking")},
    ("idle", "blocked_send"): "the model waits for the reader: its own time stands still",
    ("idle", "finished"): "its call of the model is over",
    ("deadline", "finished"): "an answer that has ended has no deadline",
    ("upstream_error", "queued"): "nothing has been asked of the model",
    ("upstream_error", "blocked_send"): "the model isn't read while the reader doesn't read",
    ("upstream_error", "finished"): "its call of the model is over",
}
CELLS = [(cause, phase) for cause in CAUSES for phase in PHASES if (cause, phase) not in IMPOSSIBLE]

#: what the answer is told and written down as; None = nobody is there to be told
ENDS: dict[str, tuple[CloseReason, str | None]] = {
    "FIN": (CloseReason.CLIENT_GONE, None),
    "RST": (CloseReason.CLIENT_GONE, None),
    "half_close": (CloseReason.CLIENT_GONE, None),
    "deadline": (CloseReason.DEADLINE, "deadline_exceeded"),
    "idle": (CloseReason.DEADLINE, "deadline_exceeded"),
    "revoke": (CloseReason.REVOKED, "principal_revoked"),
    "client_stop": (CloseReason.CLIENT_STOP, "stopped"),
    "SIGTERM": (CloseReason.SHUTTING_DOWN, "shutting_down"),
}
#: a failing part, by where it fails
FAILURES = {
    "embedding": (CloseReason.FAILED, "embedder_unavailable"),
    "retrieving": (CloseReason.FAILED, "vector_store_unavailable"),
    "reranking": (CloseReason.COMPLETED, None),  # it is skipped
    "pre_token": (CloseReason.UPSTREAM, "upstream_failed"),
    "mid_stream": (CloseReason.UPSTREAM, "upstream_failed"),
}


def end_of(cause: str, phase: str) -> tuple[CloseReason, str | None]:
    """The close reason and the code for the client, had it been the only cause."""
    if phase == "finished":
        return CloseReason.COMPLETED, None
    if (cause, phase) == ("half_close", "blocked_send"):
        return CloseReason.SLOW_READER, None  # its FIN lies behind what it doesn't read
    return FAILURES[phase] if cause == "upstream_error" else ENDS[cause]


@dataclass
class Cell:
    """One answer in its phase. ``gate`` is where it waits, ``permit`` the place that it waits for."""

    world: World
    port: int
    wire: Wire
    phase: str
    session: Session
    gate: Gate | None = None
    stub: ModelStub | None = None
    permit: Permit | None = None
    before: set[asyncio.Task[Any]] = field(default_factory=set)

    async def cause(self, name: str) -> None:
        """Brings the cause about; returns when it has been, not when it has worked."""
        match name:
            case "FIN":
                self.wire.close()
            case "RST":
                self.wire.abort()
            case "half_close":
                self.wire.half_close()
            case "revoke":
                await self.world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "root")
                self.world.services.feed.wake()
            case "upstream_error" if self.phase == "reranking" and self.stub is not None:
                self.stub.open_gate()
            case "upstream_error":
                self.world.embedder.error = EmbedderUnavailable()
                self.world.vectors.available = False
                if self.gate is not None:
                    self.gate.release.set()
            case "client_stop":
                path = f"/v1/answers/{self.session.request_id}"
                head, _ = await request(self.port, "DELETE", path, token=self.world.token())
                # another cause may have been quicker: it has ended, or its asker may stop nothing any more
                assert head.status in {204, 404, 403}
            case "SIGTERM":
                self.world.registry.refuse_new()
                self.world.registry.cancel_all(CloseReason.SHUTTING_DOWN)
            case "deadline" | "idle":
                pass  # it comes by itself

    async def settled(self) -> None:
        """Returns once no session and no task is left; then nothing may be held."""
        await self.world.registry.idle()
        if self.permit is not None:
            self.permit.release()
        while extra := {t for t in asyncio.all_tasks() - self.before if "_shutdown_watcher" not in repr(t)}:
            await asyncio.wait(extra)
        self.world.assert_nothing_held()
        if self.stub is not None:
            await self.stub.until(lambda stub: all(call.closed_at is not None for call in stub.calls))

    async def records(self) -> list[str]:
        """The close reasons that were written down for the asker's answers."""
        entries = await self.world.catalog.entries("acme", 10, "answer")
        return [str(e.details["close_reason"]) for e in entries if e.subject == "ann"]


@asynccontextmanager
async def standing_at(phase: str, causes: frozenset[str]) -> AsyncIterator[Cell]:
    """An answer that stands in the phase, in a world in which the causes can come about."""
    settings: dict[str, Any] = {"total_cap_ms": 400 if "deadline" in causes else 60_000}
    async with AsyncExitStack() as stack:
        gate, stub = Gate(), None
        if phase == "reranking":
            stub = await stack.enter_async_context(serve_stub())
            world = await _reranking(stack, stub, **settings)
        elif "idle" in causes:
            stub = await stack.enter_async_context(serve_stub())
            stalls = {"pre_token": 0, "mid_stream": 2}.get(phase)
            stub.script(tokens=list(PIECES), stall_after_tokens=stalls)
            world = World(model=await _endpoint(stack, stub), **settings)
        else:
            world = _world(phase, gate, fails="upstream_error" in causes, **settings)
        await world.learn(TEXT)
        port = await stack.enter_async_context(serving_world(world))
        before = asyncio.all_tasks()
        permit = await _generation(world).acquire(Deadline.after(0)) if phase == "queued" else None
        buffer = 4096 if phase == "blocked_send" else None
        wire = await stack.enter_async_context(connected(port, receive_buffer=buffer))
        await wire.ask(world.token(), QUESTION)
        await _reached(phase, world, wire, gate, stub)
        mine = [s for s in world.registry.identified() if s.principal and s.principal.subject == "ann"]
        session = mine[0] if mine else Session("req_over", None)  # type: ignore[arg-type] # has ended
        yield Cell(world, port, wire, phase, session, gate, stub, permit, before)


def _world(phase: str, gate: Gate, *, fails: bool, **settings: Any) -> World:
    script: Any = PIECES
    hold: dict[int, Gate] = {}
    fail: dict[int, UpstreamFailed] = {}
    match phase:
        case "queued":
            settings |= {"generation_concurrency": 1, "generation_wait_ms": 60_000}
        case "embedding":
            return World(model=ScriptedModel(script), embedder=FixedEmbedder(hold=gate), **settings)
        case "retrieving":
            return World(model=ScriptedModel(script), holds={"vectors.dense": Hold(gate)}, **settings)
        case "pre_token" | "mid_stream":
            place = 0 if phase == "pre_token" else 2
            hold, fail = {place: gate}, {place: UpstreamFailed()} if fails else {}
        case "blocked_send":
            script = ["x" * 65_536] * 400
            settings |= {"send_timeout_s": 1.0, "revoked_send_ms": 100}
    return World(model=ScriptedModel(script, hold=hold, fail=fail), **settings)


def _generation(world: World) -> Bulkhead:
    return next(b for b in world.services.bulkheads if b.name == "generation")


async def _reranking(stack: AsyncExitStack, stub: ModelStub, **settings: Any) -> World:
    """Its reranker is held at the gate, and breaks when it is let go."""
    stub.script_model("judge", gate_after_tokens=0, rerank="cut")
    url = f"{stub.base_url}/rerank"
    reranker = RerankEndpoint(url, "judge", None, max_sensitivity=3, connect_cap_ms=5000)
    stack.push_async_callback(reranker.aclose)
    config = open_gate(reranker.version)
    model = ScriptedModel(PIECES)
    return World(model=model, reranker=reranker, config=config, rerank_cap_ms=60_000, **settings)


async def _endpoint(stack: AsyncExitStack, stub: ModelStub) -> OpenAIModel:
    caps = {"connect_cap_ms": 5000, "first_token_cap_ms": 300, "idle_cap_ms": 300}
    model = OpenAIModel(stub.base_url, "stub", None, max_sensitivity=3, **caps)
    stack.push_async_callback(model.aclose)
    return model


async def _reached(phase: str, world: World, wire: Wire, gate: Gate, stub: ModelStub | None) -> None:
    match phase:
        case "queued":
            while not _generation(world).waiting:
                await anyio.lowlevel.checkpoint()
        case "blocked_send":
            await _blocked(world.model)
        case "finished":
            await wire.read_head()
            assert (await wire.all_events())[-1].name == "done"
        case "reranking" if stub is not None:
            await stub.until(lambda s: bool(s.calls))
        case _ if stub is not None:
            tokens = 2 if phase == "mid_stream" else 0
            await stub.until(lambda s: bool(s.calls) and s.calls[0].tokens == tokens)
        case _:
            await gate.reached.wait()


async def _blocked(model: ScriptedModel) -> None:
    """Returns once the model has produced nothing over many turns of the loop."""
    still, seen = 0, -1
    while still < 2000:
        await anyio.lowlevel.checkpoint()
        still = still + 1 if model.produced == seen and seen > 0 else 0
        seen = model.produced
