"""Model calls over real sockets: throttled, slow and dead endpoints, and the second one behind them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.openai.model import OpenAIModel
from gateway.answer.calls.fault import ModelRefused, ModelThrottled, ModelUnreached
from gateway.answer.prompt import Message, Prompt
from gateway.bootstrap.parts import PartsOpener
from gateway.client import StreamEvent
from gateway.context import Deadline
from gateway.errors import UpstreamFailed
from gateway.settings import Settings
from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.process import eventually
from tests.harness.serving import serving_world
from tests.harness.wire import Head, ask, request
from tests.harness.world import Hold, World

PATIENCE_S = 20
LONG_MS = 60_000
KNOWN = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes."}
QUESTION = "What is the upload limit?"
#: nothing here is about how fast a busy machine is
PATIENT: dict[str, Any] = {
    "total_cap_ms": LONG_MS,
    **{f"{cap}_cap_ms": 15_000 for cap in ("embed", "retrieval", "catalog")},
    **{f"{stage}_wait_ms": 15_000 for stage in ("embedding", "retrieval")},
}


@dataclass
class Town:
    """A gateway and the stubs its two endpoints are at."""

    world: World
    port: int
    first: ModelStub
    second: ModelStub

    async def ask(self) -> tuple[Head, list[StreamEvent]]:
        with anyio.fail_after(PATIENCE_S):
            return await ask(self.port, self.world.token(), QUESTION)

    async def last_event(self) -> StreamEvent:
        head, events = await self.ask()
        assert head.status == 200
        return events[-1]

    async def metric(self, series: str) -> float:
        _, body = await request(self.port, "GET", "/metrics")
        (line,) = [line for line in body.decode().splitlines() if line.startswith(f"{series} ")]
        return float(line.rpartition(" ")[2])


def endpoint(base_url: str, name: str = "stub", first_token_cap_ms: int = LONG_MS) -> OpenAIModel:
    return OpenAIModel(
        base_url,
        name,
        None,
        max_sensitivity=1,
        connect_cap_ms=5000,
        first_token_cap_ms=first_token_cap_ms,
        idle_cap_ms=LONG_MS,
    )


@asynccontextmanager
async def town(
    *, alone: bool = False, first_token_cap_ms: int = LONG_MS, sensitivity: int = 0, **settings: Any
) -> AsyncIterator[Town]:
    """Two endpoints, or the first one ``alone``."""
    async with AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(serve_stub(reply=f"It is 42 {n} [1].")) for n in "AB"]
        models = [
            endpoint(stub.base_url, name, first_token_cap_ms) for stub, name in zip(stubs, "AB", strict=True)
        ]
        for model in models:
            stack.push_async_callback(model.aclose)
        world = World(model=models[0], second_model=None if alone else models[1], **{**PATIENT, **settings})
        await world.learn(KNOWN, sensitivity=sensitivity)
        port = await stack.enter_async_context(serving_world(world))
        yield Town(world, port, *stubs)
        await world.registry.idle()
        world.assert_nothing_held()


def told(events: list[StreamEvent]) -> str:
    return "".join(event.data["text"] for event in events if event.name == "delta")


async def test_a_throttled_call_is_made_again_when_the_endpoint_says() -> None:
    """One 429 isn't the asker's business; the repetition is counted."""
    async with town(alone=True) as here:
        here.first.script(reply="It is 42 [1].", throttle=1, throttle_retry_after="0.05")
        event = await here.last_event()
        assert (event.name, event.data["cacheable"]) == ("done", True)
        first, again = here.first.calls
        assert first.closed_at is not None
        assert again.started - first.closed_at >= 0.05
        assert await here.metric('gateway_model_retries_total{kind="same_endpoint"}') == 1
        assert await here.metric('gateway_model_calls_total{kind="generation"}') == 2


async def test_an_endpoint_that_throttles_on_and_on_is_left_alone() -> None:
    """Each asker hears at once and when to come again, later ones before anything is searched for them."""
    async with town(alone=True, breaker_failures=3, breaker_open_s=60) as here:
        here.first.script(throttle=1000, throttle_retry_after="90")
        for _ in range(3):
            event = await here.last_event()
            assert (event.name, event.data["code"]) == ("error", "upstream_failed")
            assert (event.data["retry_after_ms"], event.data["partial"]) == (90_000, False)
        searched = await here.metric("gateway_retrievals_total")
        head, _ = await here.ask()
        assert (head.status, len(here.first.calls)) == (503, 3)
        assert 50 <= int(head.headers["retry-after"]) <= 60
        assert await here.metric("gateway_retrievals_total") == searched


SILENT: dict[str, dict[str, Any]] = {
    "no headers": {"header_delay_ms": LONG_MS},
    "no text": {"stall_after_tokens": 0},
    "comments only": {"stall_after_tokens": 0, "comments_only": True},
}


@pytest.mark.parametrize("script", SILENT.values(), ids=SILENT)
async def test_the_second_endpoint_answers_for_a_silent_first_one(script: dict[str, Any]) -> None:
    """The silent call is closed before; what comes of it is kept by nobody."""
    async with town(first_token_cap_ms=150) as here:
        here.first.script(**script)
        _, events = await here.ask()
        assert (told(events), events[-1].data["cacheable"]) == ("It is 42 B [1].", False)
        with anyio.fail_after(PATIENCE_S):
            await here.first.until(lambda stub: stub.calls[0].closed_at is not None)
        assert here.first.calls[0].reason == "client_gone"
        assert await here.metric('gateway_model_retries_total{kind="second_endpoint"}') == 1


async def test_a_dead_endpoint_is_not_asked_each_time() -> None:
    """After so many failures in a row only the second one is."""
    async with town(breaker_failures=3, breaker_open_s=60) as here:
        here.first.script(error_before={"status": 500})
        for _ in range(6):
            assert (await here.last_event()).name == "done"
        assert (len(here.first.calls), len(here.second.calls)) == (3, 6)


async def test_an_endpoint_that_is_back_is_asked_again_by_one_first() -> None:
    """The probe's answer reopens it; no restart is needed."""
    async with town(breaker_failures=1, breaker_open_s=0.05) as here:
        here.first.script(error_before={"status": 500})
        await here.last_event()
        here.first.script(reply="It is 42 again [1].")
        with anyio.fail_after(PATIENCE_S):
            while "again" not in told((await here.ask())[1]):
                pass
        assert len(here.first.calls) == 2
        assert (await here.last_event()).data["cacheable"] is True


async def test_a_break_after_text_is_told_and_nobody_else_is_asked() -> None:
    """What the client has read can't be taken back."""
    async with town() as here:
        here.first.script(tokens=["It is ", "42"], die_after_tokens=1)
        event = await here.last_event()
        assert (event.name, event.data["code"], event.data["partial"]) == ("error", "upstream_failed", True)
        assert (len(here.first.calls), here.second.calls) == (1, [])


async def test_a_full_rate_is_told_in_the_drafts_fields() -> None:
    """Beside Retry-After."""
    async with town(requests_per_minute=1) as here:
        await here.ask()
        head, _ = await here.ask()
        assert head.status == 429
        assert head.headers["retry-after"] == "60"
        assert head.headers["ratelimit-policy"] == '"requests";q=1;w=60'
        assert head.headers["ratelimit"] == '"requests";r=0;t=60'


async def test_twenty_questions_at_once_are_answered_in_eight_places() -> None:
    """Twelve wait for a search of the others to end, and nobody is turned away."""
    hold = Hold()
    world = World(holds={"vectors.dense": hold}, **PATIENT)
    await world.learn(KNOWN)
    (retrieval,) = [bulkhead for bulkhead in world.services.bulkheads if bulkhead.name == "retrieval"]
    outcomes: list[tuple[int, str]] = []

    async def one(port: int) -> None:
        head, events = await ask(port, world.token(), QUESTION)
        outcomes.append((head.status, events[-1].name if events else ""))

    async def all_wait() -> bool:
        return retrieval.waiting == 12 or bool(outcomes)

    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(one, port)
                await eventually(all_wait)
                assert (retrieval.size, retrieval.in_use) == (8, 8)
                hold.gate.release.set()
            await world.registry.idle()
    assert outcomes == [(200, "done")] * 20
    world.assert_nothing_held()


# -- what the adapter says of a failure --------------------------------------------------------------

PROMPT = Prompt("q", (), (Message("user", "what?"),), 64, "en")


@asynccontextmanager
async def endpoint_at(base_url: str) -> AsyncIterator[OpenAIModel]:
    model = endpoint(base_url)
    try:
        yield model
    finally:
        await model.aclose()


async def failure_of(model: OpenAIModel) -> UpstreamFailed:
    with anyio.fail_after(PATIENCE_S), pytest.raises(UpstreamFailed) as caught:
        async with model.stream(PROMPT, Deadline.after(LONG_MS)):
            pass
    return caught.value


STATUSES: dict[int, type[UpstreamFailed]] = {
    **dict.fromkeys((301, 307, 400, 401, 403, 404, 413, 422), ModelRefused),
    **dict.fromkeys((429, 503), ModelThrottled),
    **dict.fromkeys((408, 409, 500, 502, 504), UpstreamFailed),
}


async def test_a_status_tells_whether_it_is_worth_asking_again() -> None:
    """And whether anything may have been generated."""
    async with serve_stub() as stub, endpoint_at(stub.base_url) as model:
        for status, kind in STATUSES.items():
            stub.script(error_before={"status": status, "location": f"{stub.url}/elsewhere"})
            assert type(await failure_of(model)) is kind, status


async def test_a_connection_that_never_was_is_told_from_one_that_broke() -> None:
    """Nothing was sent in the one case, and nobody knows in the other."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with endpoint_at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1") as model:
            assert type(await failure_of(model)) is ModelUnreached

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, endpoint_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1") as model:
        assert type(await failure_of(model)) is UpstreamFailed


@pytest.mark.parametrize(("first_up", "second_up"), [(True, False), (False, True), (False, False)])
async def test_readiness_wants_one_of_the_two_endpoints(first_up: bool, second_up: bool) -> None:
    """A balancer must not drop a gateway that still answers."""
    async with serve_stub() as stub, AsyncExitStack() as stack:
        nobody = "http://127.0.0.1:9/v1"
        settings = Settings(
            model_base_url=stub.base_url if first_up else nobody,
            model_name="stub",
            fallback_model_base_url=stub.base_url if second_up else nobody,
            fallback_model_name="stub",
        )
        opener = PartsOpener(settings, stack)
        opener.models.model(FixedEmbedder())
        opener.models.second_model()
        assert await opener.checks["model"]() is (first_up or second_up)
