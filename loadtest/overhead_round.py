"""One round of the overhead benchmark: each server fresh, asked one by one, then with many streams open."""

import asyncio
import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from loadtest.overhead_parts import Load, Stub, Target, bare_process, gateway_process
from loadtest.overhead_text import tokens
from tests.harness.process import GatewayProcess

#: the second lot of streams is there to be held open; at full pace it would only compete
_SLOW_RATE = 2.0
_SETTLE_S = 1.0
_SHORT_ANSWER = 24
_SPARE_S = 240.0  # opening takes long on a busy machine, and no stream may run dry


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of each server. Times in seconds, rates per second."""

    streams: int
    rate: float
    seconds: float
    idle_seconds: float
    arrivals: float
    asks: int
    warm_up: int


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of one series, in its own unit."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        return cls(round(cuts[49], 3), round(cuts[94], 3), round(cuts[98], 3))


@dataclass(frozen=True, slots=True)
class Streaming:
    """One server with ``streams`` open. CPU is user and system time of its process, the idle share taken off.

    ``kept_up`` is tokens that reached the client over tokens the model said.
    """

    cpu_us_per_token: float
    children_cpu_us_per_token: float
    stub_cpu_us_per_token: float
    load_cpu_us_per_token: float
    cores: float
    tokens: int
    kept_up: float
    first_token_ms: Quantiles
    gap_ms: Quantiles
    rss_kb_per_stream: float
    rss_kb_per_further_stream: float


async def streaming(
    target: Target, stub: Stub, load: Load, plan: Plan, idle_cores: tuple[float, float]
) -> Streaming:
    """Opens the streams, measures the steady state, opens as many again for the memory, leaves."""
    await stub.script(tokens=tokens(_tokens_needed(plan)), cadence_ms=1000 / plan.rate)
    before = target.usage().rss
    first = await load.open(target, plan.streams, 1 / plan.arrivals)
    await asyncio.sleep(_SETTLE_S)
    window = await _window(target, stub, load, plan.seconds)
    full = target.usage().rss
    await stub.script(tokens=tokens(_tokens_needed(plan)), cadence_ms=1000 / _SLOW_RATE)
    await load.open(target, plan.streams, 1 / plan.arrivals)
    await asyncio.sleep(_SETTLE_S)
    twice = target.usage().rss
    await load.do("close")
    await stub.forget(2 * plan.streams)
    return window.result(first, idle_cores, ((full - before) / plan.streams, (twice - full) / plan.streams))


def _tokens_needed(plan: Plan) -> int:
    open_for_s = 2 * plan.streams / plan.arrivals + plan.seconds + 2 * _SETTLE_S + _SPARE_S
    return int(open_for_s * plan.rate)


@dataclass(frozen=True, slots=True)
class _Window:
    """What was used and what came through between two looks."""

    seconds: float
    said: int
    came: int
    own_s: float
    children_s: float
    stub_s: float
    load_s: float
    gaps_ms: Sequence[float]

    def result(
        self, first_ms: Sequence[float], idle_cores: tuple[float, float], rss: tuple[float, float]
    ) -> Streaming:
        own, children = (
            used - cores * self.seconds
            for used, cores in zip((self.own_s, self.children_s), idle_cores, strict=True)
        )
        return Streaming(
            cpu_us_per_token=round(own / self.said * 1e6, 2),
            children_cpu_us_per_token=round(children / self.said * 1e6, 2),
            stub_cpu_us_per_token=round(self.stub_s / self.said * 1e6, 2),
            load_cpu_us_per_token=round(self.load_s / self.said * 1e6, 2),
            cores=round(self.own_s / self.seconds, 3),
            tokens=self.said,
            kept_up=round(self.came / self.said, 4),
            first_token_ms=Quantiles.of(first_ms),
            gap_ms=Quantiles.of(self.gaps_ms),
            rss_kb_per_stream=round(rss[0] / 1000, 1),
            rss_kb_per_further_stream=round(rss[1] / 1000, 1),
        )


async def _window(target: Target, stub: Stub, load: Load, seconds: float) -> _Window:
    await load.do("look")
    said = await stub.produced()
    began, used = time.monotonic(), _used(target, stub, load)
    await asyncio.sleep(seconds)
    ended, now_used = time.monotonic(), _used(target, stub, load)
    said = await stub.produced() - said
    looked = await load.do("look")
    own_s, children_s, stub_s, load_s = (after - before for before, after in zip(used, now_used, strict=True))
    return _Window(
        ended - began, said, looked["tokens"], own_s, children_s, stub_s, load_s, looked["gaps_ms"]
    )


def _used(target: Target, stub: Stub, load: Load) -> tuple[float, float, float, float]:
    own = target.usage()
    times = psutil.Process(load.pid).cpu_times()
    return own.own_s, own.children_s, stub.target.usage().own_s, times.user + times.system


async def idle(targets: Sequence[Target], seconds: float) -> dict[str, tuple[float, float]]:
    """Cores that each uses while nobody asks: itself, its children."""
    before = {target.name: target.usage() for target in targets}
    await asyncio.sleep(seconds)
    after = {target.name: target.usage() for target in targets}
    return {
        name: ((after[name].own_s - one.own_s) / seconds, (after[name].children_s - one.children_s) / seconds)
        for name, one in before.items()
    }


async def one_by_one(targets: Sequence[Target], stub: Stub, load: Load, plan: Plan) -> dict[str, list[float]]:
    """Milliseconds to the first token of answers that nothing else competes with, the servers by turns."""
    await stub.script(tokens=tokens(_SHORT_ANSWER))
    for number in range(plan.warm_up):
        for target in targets:
            await load.ask(target, number)
    first: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(plan.asks):
        for target in targets:
            first[target.name].append(await load.ask(target, number))
    await stub.forget((plan.warm_up + plan.asks) * len(targets))
    return first


def stages(gateway: GatewayProcess, asks: int) -> list[dict[str, float]]:
    """Milliseconds of each stage of the last answers, oldest first, as the gateway's own log gives them."""
    ended = gateway.log("answer.ended")[-asks:]
    return [{name: ms for name, ms in one.items() if name.endswith("_ms")} for one in ended]


async def run_round(
    number: int, folder: Path, settings: dict[str, str], stub: Stub, load: Load, plan: Plan
) -> dict[str, Any]:
    """Every figure of one round, raw; the order of the servers changes from round to round."""
    async with contextlib.AsyncExitStack() as stack:
        bare = await stack.enter_async_context(bare_process(folder / f"bare-{number}", stub))
        gateway, served = await stack.enter_async_context(
            gateway_process(folder / f"gateway-{number}", settings)
        )
        order = [bare, served] if number % 2 == 0 else [served, bare]
        first = await one_by_one([stub.target, *order], stub, load, plan)
        timed = stages(gateway, plan.asks)
        idle_cores = await idle(order, plan.idle_seconds)
        found = {
            target.name: asdict(await streaming(target, stub, load, plan, idle_cores[target.name]))
            for target in order
        }
        return {
            "order": [target.name for target in order],
            "idle_cores": idle_cores,
            "one_by_one_first_token_ms": first,
            "gateway_stages_ms": timed,
            "streaming": found,
        }
