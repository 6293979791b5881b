"""Conservation: never more than the limits in total, whatever happens to processes and to Redis."""

import itertools
import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest
from anyio.abc import TaskGroup

from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLease, QuotaLimits, ReservationKey
from gateway.errors import QuotaExceeded, QuotaUnavailable
from tests.harness.process import eventually
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.redis_server import RedisServer
from tests.integration.quota_world import PATIENCE_S, crash, raw

CALLS, REQUESTS, TOKENS = 6, 40, 400
CALL_S = 0.15  # of the longest call
WINDOW_S = 0.6
TERMS = QuotaTerms(
    tenant=QuotaLimits(CALLS, REQUESTS, TOKENS),
    model=QuotaLimits(CALLS + 1),
    lease_s=0.4,
    total_cap_s=CALL_S + 0.1,
    window_s=WINDOW_S,
)
CAP_MS = 150

_requests = itertools.count()


class Running:
    """One call that really runs, in whatever process."""

    def __init__(self, books: "Books", tokens: int) -> None:
        self._books = books
        self.asked_at, self.got_at = time.monotonic(), math.inf
        self.tokens = tokens
        self.lost = anyio.Event()

    def begin(self) -> None:
        self.got_at = time.monotonic()
        if not self.lost.is_set():
            self._books.begin(self)

    def lose(self) -> None:
        self.lost.set()
        self.end()

    def end(self) -> None:
        self._books.running.discard(self)


class Books:
    """What really runs and was used, over all processes."""

    def __init__(self) -> None:
        self.running: set[Running] = set()
        self.begun: list[Running] = []
        self.most = 0

    def begin(self, call: Running) -> None:
        self.running.add(call)
        self.begun.append(call)
        self.most = max(self.most, len(self.running))

    def check(self) -> None:
        """At every moment, and in every window: of it the calls that certainly began within it."""
        assert self.most <= CALLS
        for first in self.begun:
            end = first.asked_at + WINDOW_S
            inside = [call for call in self.begun if first.asked_at <= call.asked_at and call.got_at < end]
            assert len(inside) <= REQUESTS
            assert sum(call.tokens for call in inside) <= TOKENS


class Process:
    """Callers of one process that ask all the time, until it ends."""

    def __init__(self, url: str, name: str, books: Books, rng: random.Random) -> None:
        self.quota = RedisQuota(url, TERMS, name, CAP_MS)
        self._books = books
        self._rng = rng
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as callers:
                for _ in range(4):
                    callers.start_soon(self._ask_on)

    async def crash(self) -> None:
        """Its calls are gone with it, and nobody is told."""
        self.stop()
        await crash(self.quota)

    def stop(self) -> None:
        self._scope.cancel()

    async def leave(self) -> None:
        self.stop()
        await self.quota.aclose()

    async def _ask_on(self) -> None:
        while True:
            await self._call(Running(self._books, self._rng.randint(1, 20)))
            await anyio.sleep(self._rng.uniform(0, 0.01))

    async def _call(self, call: Running) -> None:
        key = ReservationKey(f"r{next(_requests)}", 1, "m")
        lease: QuotaLease | None = None
        with anyio.move_on_after(self._rng.choice([1, 1, 0.002])):  # some callers leave
            try:
                lease = await self.quota.reserve(key, "acme", "m", call.tokens, call.lose)
            except (QuotaExceeded, QuotaUnavailable):
                return
        if lease is None:
            return
        call.begin()
        try:
            with anyio.move_on_after(self._rng.uniform(0, CALL_S)):
                await call.lost.wait()
            call.tokens = self._rng.choice([0, call.tokens // 2, call.tokens])
            lease.settle(call.tokens)
        finally:
            call.end()
            lease.release()


class Town:
    """Three processes, one of them behind a proxy, and a Redis; each step breaks or mends something."""

    def __init__(self, redis: RedisServer, proxy: Proxy, url: str, tasks: TaskGroup, seed: int) -> None:
        self._redis = redis
        self._proxy = proxy
        self._urls = {"a": url, "b": url, "far": redis.through(proxy.port, url)}
        self._tasks = tasks
        self._rng = random.Random(seed)
        self.books = Books()
        self.processes: dict[str, Process] = {}

    def start(self, name: str) -> None:
        process = Process(self._urls[name], name, self.books, self._rng)
        self.processes[name] = process
        self._tasks.start_soon(process.run)

    async def step(self, word: str) -> None:
        name = self._rng.choice(list(self.processes))
        match word:
            case "crash":
                await self.processes.pop(name).crash()
                self.start(name)
            case "leave":
                await self.processes.pop(name).leave()
                self.start(name)
            case "cut off":
                await self._proxy.refuse()
            case "lose replies":
                self._proxy.hold_replies()
            case "mend":
                self._proxy.flow()
                await self._proxy.accept()
            case "flush" | "forget scripts":
                async with raw(self._urls["a"]) as client:
                    await (client.flushdb() if word == "flush" else client.script_flush())
            case "pause":
                self._redis.pause()
                await anyio.sleep(self._rng.uniform(0.1, 0.5))
                self._redis.resume()
            case "restart":
                self._redis.restart()
            case "stop":
                self._redis.stop()
                await anyio.sleep(TERMS.quiet_s + 2 * TERMS.margin_s)
                self._redis.start()
            case _:
                await anyio.sleep(self._rng.uniform(0.1, 0.4))

    async def goes_on(self) -> None:
        """All callers have gone: soon the whole limit is there again, for whichever process, and no more."""
        for process in self.processes.values():
            process.stop()
        quotas = [process.quota for process in self.processes.values()]

        async def whole() -> bool:
            await anyio.sleep(WINDOW_S / 2)  # what is asked for too often uses up the requests
            leases = []
            for number, quota in zip(range(CALLS + 1), itertools.cycle(quotas), strict=False):
                with suppress(QuotaExceeded, QuotaUnavailable):
                    key = ReservationKey(f"r{next(_requests)}", 1, "m")
                    leases.append(await quota.reserve(key, "acme", "m", number))
            for lease in leases:
                lease.settle(0)
            assert len(leases) <= CALLS
            return len(leases) == CALLS

        await eventually(whole, PATIENCE_S)


STEPS = (
    "crash",
    "leave",
    "cut off",
    "lose replies",
    "mend",
    "flush",
    "forget scripts",
    "pause",
    "restart",
    "stop",
)


async def conserved(redis: RedisServer, steps: Sequence[str], seed: int) -> None:
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, anyio.create_task_group() as tasks:
        town = Town(redis, proxy, url, tasks, seed)
        for name in ("a", "b", "far"):
            town.start(name)
        try:
            for word in ("wait", *steps, "mend"):
                await town.step(word)
                await town.step("wait")
            await town.goes_on()
        finally:
            with anyio.CancelScope(shield=True):
                for process in town.processes.values():
                    await process.leave()
        town.books.check()
        assert not town.books.running


async def test_limits_hold_while_everything_breaks_once(redis: RedisServer) -> None:
    """Each fault by itself and on top of another; afterwards all of the limit is there again."""
    steps = [
        "cut off",
        "flush",
        "wait",
        "crash",
        "mend",
        "pause",
        "lose replies",
        "wait",
        "forget scripts",
        "mend",
    ]
    await conserved(redis, [*steps, "restart", "leave", "cut off", "stop"], 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
async def test_limits_hold_whatever_happens(redis: RedisServer, seed: int) -> None:
    """Random faults in a random order."""
    rng = random.Random(seed)
    await conserved(redis, [rng.choice(STEPS) for _ in range(15)], seed)
