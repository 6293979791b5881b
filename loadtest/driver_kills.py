"""Kill -9 rounds: two gateways share a quota that is all in use, one dies, and everything must come back."""

import asyncio
import contextlib
import itertools
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from loadtest.client_manner import How
from loadtest.client_stream import Stream
from loadtest.driver_servers import Door
from loadtest.driver_stops import SETTINGS, Asker
from loadtest.model_stub import ModelStub
from loadtest.open_loop_report import spread
from loadtest.overhead_text import tokens
from loadtest.scenarios import Questions
from tests.harness.process import GatewayProcess, gone

LEASE_S = 1.0
#: the tenant's places, over both processes
PLACES = 4
_PATIENCE_S = 120.0
_AGAIN_S = 0.02

KILL_SETTINGS = {
    **SETTINGS,
    "GATEWAY_QUOTA_CONCURRENCY": str(PLACES),
    "GATEWAY_QUOTA_LEASE_S": f"{LEASE_S:g}",
    "GATEWAY_QUOTA_CAP_MS": "450",
}


class NotFull(RuntimeError):
    """Places that didn't come back; says what callers were told instead."""


class Standing:
    """One place in the row: a gateway that is killed and comes back, on its port and under its name."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._stack = contextlib.AsyncExitStack()
        self._port = 0
        self.gateway: GatewayProcess | None = None

    async def start(self) -> None:
        self.gateway = await self._stack.enter_async_context(self._door.open(self._port))
        self._port = self.gateway.port

    async def kill(self) -> None:
        """Returns when its whole tree is gone, which nobody told to go."""
        assert self.gateway is not None
        gateway, self.gateway = self.gateway, None
        tree = gateway.children()
        gateway.send(signal.SIGKILL)
        await gateway.ended()
        for pid in tree:
            await gone(pid)
        await self._stack.aclose()

    async def aclose(self) -> None:
        await self._stack.aclose()


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds from the kill: until the process serves again, and until every place is in use again."""

    ready_s: float
    full_s: float
    truncated: int


async def kill_rounds(
    doors: Sequence[Door], stub: ModelStub, asked: Questions, rounds: int
) -> dict[str, Any]:
    """Every figure. ``beyond`` counts questions that were let in when every place was in use."""
    stub.script(tokens=tokens(100), stall_after_tokens=3)
    row = [Standing(door) for door in doors]
    done: list[Round] = []
    beyond = 0
    try:
        for standing in row:
            await standing.start()
        first = row[0].gateway
        assert first is not None
        keys = []
        running = await _fill(row, asked)
        for number in range(rounds):
            beyond += await _is_let_in(row, running, asked)
            result, running = await _round(row, number, running, asked)
            done.append(result)
            keys.append(_keys(doors[0]))
        await _leave(running)
    finally:
        for standing in row:
            await standing.aclose()
    return {
        "rounds": rounds,
        "lease_s": LEASE_S,
        "places": PLACES,
        "ready_s": spread(one.ready_s for one in done),
        "full_s": spread(one.full_s for one in done),
        "full_after_ready_s": spread(max(0.0, one.full_s - one.ready_s) for one in done),
        "streams_truncated": sum(one.truncated for one in done),
        "beyond": beyond,
        "redis_keys": {"first": keys[0], "last": keys[-1], "most": max(keys)},
        "model_calls": len(stub.calls),
        "model_calls_open": sum(call.closed_at is None for call in stub.calls),
    }


async def _round(
    row: Sequence[Standing], number: int, running: Sequence[Stream], asked: Questions
) -> tuple[Round, list[Stream]]:
    victim = row[number % len(row)]
    killed_at = time.monotonic()
    await victim.kill()
    await _leave(running)  # those at the other one; the rest has been cut off
    truncated = sum(stream.left is None for stream in running)
    filling = asyncio.create_task(_fill(row, asked))
    try:
        await victim.start()
        ready_s = time.monotonic() - killed_at
        again = await filling
    finally:
        filling.cancel()
    return Round(ready_s, time.monotonic() - killed_at, truncated), again


async def _leave(running: Sequence[Stream]) -> None:
    for stream in running:
        stream.leave(How.FIN)
    async with asyncio.timeout(_PATIENCE_S):
        for stream in running:
            await stream.over.wait()


async def _fill(row: Sequence[Standing], asked: Questions) -> list[Stream]:
    """Asks at whoever stands until every place is in use. Raises NotFull."""
    running: list[Stream] = []
    told: Counter[str] = Counter()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for standing in itertools.cycle(row):
                stream = await _asked(standing, asked)
                if isinstance(stream, Stream):
                    running.append(stream)
                else:
                    told[stream] += 1
                    await asyncio.sleep(_AGAIN_S)
                if len(running) == PLACES:
                    break
    except TimeoutError:
        raise NotFull(f"{len(running)} of {PLACES} places: {dict(told)}") from None
    return running


async def _asked(standing: Standing, asked: Questions) -> Stream | str:
    """A stream that speaks, or what was said instead."""
    if standing.gateway is None:
        return "nobody there"
    try:
        stream = await Asker.of(standing.gateway, asked).ask()
    except OSError:
        return "nobody there"
    await stream.speaking.wait()
    if stream.deltas and not stream.over.is_set():
        return stream
    await stream.over.wait()
    return f"{stream.status} {stream.code}"


async def _is_let_in(row: Sequence[Standing], running: Sequence[Stream], asked: Questions) -> bool:
    """Whether one more finds a place, though all are in use and stay so."""
    stream = await _asked(row[0], asked)
    if isinstance(stream, str):
        return False
    full = not any(each.over.is_set() for each in running)
    await _leave([stream])
    return full


def _keys(door: Door) -> int:
    """How many keys the installation has in Redis."""
    with contextlib.closing(redis.Redis.from_url(door.environment["GATEWAY_REDIS_URL"])) as client:
        return int(client.dbsize())
