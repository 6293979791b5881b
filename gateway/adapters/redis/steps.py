"""Steps: what the quota asks of Redis, each in a bounded time."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.asyncio import RedisCluster

from gateway.adapters.redis.apart import StepsApart
from gateway.adapters.redis.call_scripts import RESERVE, SETTLE
from gateway.adapters.redis.calls import Call
from gateway.adapters.redis.connection import Client, close_redis, open_redis, redis_errors
from gateway.adapters.redis.places import ALONE, FORGET, INCARNATION, REGISTRY, SILENT, Place
from gateway.adapters.redis.process_scripts import BEAT, LEAVE, LOOK, START
from gateway.adapters.redis.script import Script
from gateway.adapters.redis.standing import BeatReply, Standing
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import Kind, QuotaLimits
from gateway.errors import QuotaUnavailable

T = TypeVar("T")

_PROCESSES = (INCARNATION, REGISTRY, SILENT, ALONE, FORGET)
_KINDS: tuple[Kind, ...] = ("concurrency", "requests", "tokens")


@dataclass(frozen=True, slots=True)
class ReserveReply:
    """``word``: held, over, closed or spent. When over, the budget that was, of which kind, and its room."""

    word: str
    wait_ms: int
    budget: int = 0
    kind: Kind = "concurrency"
    room: int = 0


@dataclass(frozen=True, slots=True)
class QuotaServer:
    """The Redis behind a quota. ``evicts``: when its memory is full it drops keys, leases among them."""

    version: str
    evicts: bool


class QuotaSteps:
    """Every step raises QuotaUnavailable, within ``cap_ms``, when Redis hasn't done it or nobody knows.

    What is done after that is the same as if it had been done before; its reply is dropped.
    """

    def __init__(self, url: str, terms: QuotaTerms, cap_ms: int) -> None:
        """Raises ConfigurationError for a URL that means nothing."""
        self._redis: Client = open_redis(url, cap_ms)
        self._terms = terms
        self._cap_s = cap_ms / 1000
        self._steps = StepsApart()
        self._closed_ms = _ms(terms.quiet_s)
        self._lease_ms = _ms(terms.lease_s)
        self._record_ms = _ms(terms.record_s)
        self._slot_ms = max(1, round(terms.window_s * 1000 / 60))

    async def reserve(self, place: Place, tokens: int) -> ReserveReply:
        keys = (INCARNATION, REGISTRY, SILENT, ALONE, *place.keys)
        arguments: tuple[str | int, ...] = (
            *(self._closed_ms, self._lease_ms, self._slot_ms, self._record_ms, place.member, tokens),
            *(_number(budget.limit(kind)) for budget in place.budgets for kind in _KINDS),
        )
        return ReserveReply(*await self._within_cap(self._run(RESERVE, keys, arguments)))

    async def settle(self, place: Place, used: int | str) -> None:
        arguments = (self._record_ms, self._slot_ms, place.member, used)
        await self._within_cap(self._run(SETTLE, place.keys, arguments))

    async def beat(self, standing: Standing, alone_ms: int | None, calls: Sequence[Call]) -> BeatReply:
        """``alone_ms``: since this process last admitted a call alone."""
        terms = self._terms
        keys = (*_PROCESSES, *(key for call in calls for key in (call.place.record, *call.place.leases)))
        arguments: tuple[str | int, ...] = (
            *(self._closed_ms, self._lease_ms, _ms(terms.forgotten_s), _ms(terms.slots_s), self._record_ms),
            *(standing.name, standing.instance, standing.next_number()),
            *(_or_nothing(standing.heard_ms), standing.part, standing.version, _or_nothing(alone_ms)),
            *(standing.registry, _places(terms.tenant) + _places(terms.model)),
            *(call.place.member for call in calls),
        )
        return BeatReply(*await self._within_cap(self._run(BEAT, keys, arguments)))

    async def leave(self, standing: Standing, alone_ms: int | None) -> None:
        arguments = (
            *(standing.name, standing.instance),
            *(_ms(self._terms.slots_s), standing.part, _or_nothing(alone_ms)),
        )
        await self._within_cap(self._run(LEAVE, _PROCESSES, arguments))

    async def look(self) -> int:
        """For how many ms the incarnation is still closed."""
        return int(await self._within_cap(self._run(LOOK, (INCARNATION,), (self._closed_ms,))))

    async def start(self) -> bool:
        return bool(await self._within_cap(self._run(START, (INCARNATION,), ())))

    async def server(self) -> QuotaServer:
        found = await self._within_cap(self._server())
        return QuotaServer(found["redis_version"], found["maxmemory_policy"] != "noeviction")

    async def aclose(self, within_s: float) -> None:
        """Steps that are under way get their time; then the connections are closed."""
        await self._steps.ended(within_s)
        with redis_errors():
            await close_redis(self._redis)

    async def _server(self) -> dict[str, Any]:
        with redis_errors():
            if isinstance(self._redis, RedisCluster):
                await self._redis.initialize()
                node = self._redis.get_node_from_key(INCARNATION)
                found = await self._redis.execute_command("INFO", "everything", target_nodes=[node])
                return dict(next(iter(found.values())) if "redis_version" not in found else found)
            return {**await self._redis.info("server"), **await self._redis.info("memory")}

    async def _run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | int]) -> Any:
        with redis_errors():
            return await script.run(self._redis, keys, arguments)

    async def _within_cap(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._cap_s):
                return await self._steps.run(step)
        except TimeoutError:
            raise QuotaUnavailable("the shared quota didn't answer in time", retry_after_ms=1000) from None


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _number(limit: int | None) -> int:
    return -1 if limit is None else limit


def _or_nothing(value: int | None) -> str:
    return "" if value is None else str(value)


def _places(limits: QuotaLimits) -> str:
    return "0" if limits.concurrency is None else "1"
