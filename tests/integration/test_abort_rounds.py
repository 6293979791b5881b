"""A thousand clients that leave in every way: afterwards the server is as it was before them."""

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from gateway.adapters.openai.model import OpenAIModel
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.process import GatewayProcess, eventually, gateway_process
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import World

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"
ROUNDS = 1000
#: in this process, in each run of the tests
FEWER = 300
WARM_UP = 100
AT_ONCE = 20
PATIENCE_S = 300
MIB = 1024 * 1024
#: twenty at once on a busy machine wait for each other: that is not what is tested here
PATIENT = {
    "GATEWAY_REQUESTS_PER_MINUTE": "1000000",
    "GATEWAY_CONNECT_CAP_MS": "15000",
    "GATEWAY_EMBEDDING_CONCURRENCY": "32",
    "GATEWAY_EMBEDDING_WAIT_MS": "15000",
    "GATEWAY_RETRIEVAL_CONCURRENCY": "32",
    "GATEWAY_RETRIEVAL_WAIT_MS": "15000",
    "GATEWAY_EMBED_CAP_MS": "15000",
    "GATEWAY_RETRIEVAL_CAP_MS": "15000",
    "GATEWAY_CATALOG_CAP_MS": "15000",
    "GATEWAY_FIRST_TOKEN_CAP_MS": "15000",
    "GATEWAY_TOTAL_CAP_MS": "60000",
}
WORDS = [f"word{n} " for n in range(2000)]


async def before_the_body(wire: Wire, token: str) -> None:
    """All of the request but its last bytes."""
    await wire.ask(token, QUESTION, hold_back=5)


async def before_the_headers(wire: Wire, token: str) -> None:
    """The whole request, and not a byte of the answer."""
    await wire.ask(token, QUESTION)


async def after_meta(wire: Wire, token: str) -> None:
    await wire.ask(token, QUESTION)
    assert await first_events(wire, 1) == ["meta"]


async def in_the_stream(wire: Wire, token: str) -> None:
    await wire.ask(token, QUESTION)
    assert await first_events(wire, 3) == ["meta", "delta", "delta"]


async def first_events(wire: Wire, count: int) -> list[str]:
    """Names of the first events, once they have come."""
    head = await wire.read_head()
    assert head.status == 200, (head, await wire.body())
    events = wire.events()
    return [(await anext(events)).name for _ in range(count)]


Phase = Callable[[Wire, str], Awaitable[None]]
PHASES: tuple[Phase, ...] = (before_the_body, before_the_headers, after_meta, in_the_stream)
LEAVES: tuple[Callable[[Wire], None], ...] = (Wire.close, Wire.abort)
MIX = [(phase, leave) for phase in PHASES for leave in LEAVES]


async def abort_rounds(port: int, token: str, rounds: int) -> None:
    """``rounds`` clients, a few at a time, each leaving in its turn's phase by FIN or RST."""
    turns = iter(range(rounds))

    async def client() -> None:
        for turn in turns:
            phase, leave = MIX[turn % len(MIX)]
            async with connected(port) as wire:
                await phase(wire, token)
                leave(wire)

    async with asyncio.TaskGroup() as clients:
        for _ in range(AT_ONCE):
            clients.create_task(client())


@pytest.mark.soak
async def test_a_server_process_holds_nothing_after_a_thousand_aborts(tmp_path: Path) -> None:
    """Streams, places, descriptors, threads and memory are those of after the warm-up; so is the answer."""
    async with serve_stub(tokens=WORDS, cadence_ms=25) as stub:
        env = PATIENT | {"GATEWAY_MODEL_BASE_URL": stub.base_url}
        async with gateway_process(tmp_path, env=env) as gateway:
            await gateway.learn(TEXT)
            process = psutil.Process(gateway.pid)
            with anyio.fail_after(PATIENCE_S):
                await abort_rounds(gateway.port, gateway.token(), WARM_UP)
                await eventually(lambda: nothing_held(gateway))
                baseline = process.num_fds(), process.num_threads()
                memory = process.memory_info().rss
                await abort_rounds(gateway.port, gateway.token(), ROUNDS)
                await eventually(lambda: nothing_held(gateway))
                await eventually(lambda: at_most(process, *baseline))
            assert process.memory_info().rss - memory < 20 * MIB
            assert {call.reason for call in stub.calls} == {"client_gone"}
            assert sum(call.tokens_after_close for call in stub.calls) == 0
            stub.script(reply="It is 42 megabytes [1].")
            _, events, _ = await gateway.ask(QUESTION)
            assert events[-1].name == "done"
            assert await gateway.stop() == 0


async def nothing_held(gateway: GatewayProcess) -> bool:
    streams = await gateway.metric("gateway_active_streams")
    places = await gateway.metrics("gateway_bulkhead_in_use")
    assert {"sessions", "generation", "retrieval", "embedding"} <= {name.split('"')[1] for name, _ in places}
    return streams == 0 and not any(taken for _, taken in places)


async def at_most(process: psutil.Process, descriptors: int, threads: int) -> bool:
    return process.num_fds() <= descriptors and process.num_threads() <= threads


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """What is only freed by the collector counts as leaked here."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_no_task_and_no_descriptor_outlives_hundreds_of_aborts(
    without_garbage_collection: None,
) -> None:
    """In this process, where tasks can be counted: none of them is left, and every place is free."""
    async with serve_stub(tokens=WORDS, cadence_ms=25) as stub, model_of(stub) as model:
        world = World(model=model, requests_per_minute=1_000_000)
        await world.learn(TEXT)
        async with serving_world(world) as port:
            with anyio.fail_after(PATIENCE_S):
                await abort_rounds(port, world.token(), WARM_UP)
                await world.registry.idle()
                tasks, descriptors = len(asyncio.all_tasks()), open_descriptors()
                await abort_rounds(port, world.token(), FEWER)
                await world.registry.idle()
                while len(asyncio.all_tasks()) > tasks or open_descriptors() > descriptors:
                    await anyio.lowlevel.checkpoint()
            assert {call.reason for call in stub.calls} == {"client_gone"}
        world.assert_nothing_held()


@contextlib.asynccontextmanager
async def model_of(stub: ModelStub) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel(
        stub.base_url,
        "stub",
        None,
        max_sensitivity=3,
        connect_cap_ms=20_000,
        first_token_cap_ms=20_000,
        idle_cap_ms=20_000,
    )
    try:
        yield model
    finally:
        await model.aclose()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
