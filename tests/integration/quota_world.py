"""Processes that share a quota, as tests see them: opened, crashed, asked."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import orjson
import pytest
from redis.asyncio import Redis

from gateway.adapters.redis.places import INCARNATION, REGISTRY
from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLease, QuotaLimits, ReservationKey
from gateway.errors import QuotaExceeded, QuotaUnavailable
from tests.harness.process import eventually

PATIENCE_S = 30
#: never reached by a test: what comes back sooner has been given back
LONG_S = 600
CAP_MS = 2000

_calls = itertools.count()
_names = (f"process-{number}" for number in itertools.count())


def terms(limit: int = 1, lease_s: float = LONG_S, total_cap_s: float = 0.0, **given: Any) -> QuotaTerms:
    return QuotaTerms(tenant=QuotaLimits(limit), lease_s=lease_s, total_cap_s=total_cap_s, **given)


@asynccontextmanager
async def quota_at(
    url: str,
    told: QuotaTerms | None = None,
    name: str | None = None,
    cap_ms: int = CAP_MS,
    *,
    opened: bool = True,
) -> AsyncIterator[RedisQuota]:
    """One process's view of the quota; ``opened`` spares it the wait of a new installation."""
    if opened:
        async with quota_at(url, told, cap_ms=10_000, opened=False) as patient:
            await patient.start_incarnation()
    quota = RedisQuota(url, told or terms(), name or next(_names), cap_ms)
    try:
        yield quota
    finally:
        await quota.aclose()


async def crash(quota: RedisQuota) -> None:
    """As kill -9: it beats no more and tells nobody. Only what the test process would leak is closed."""
    inside = vars(quota)
    if inside["_loss"] is not None:
        inside["_loss"].cancel()
    inside["_closing"].set()
    inside["_returns"]._closed = True
    for task in (inside["_beating"], inside["_returns"]._task):
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
    await inside["_steps"].aclose(CAP_MS / 1000)
    inside["_beating"] = None


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Redis]:
    """An operator's client."""
    client: Redis = Redis.from_url(url, decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()


async def reserve(quota: RedisQuota, name: str, on_lost: Any = lambda: None) -> QuotaLease:
    return await quota.reserve(ReservationKey(name, 1, "m"), "acme", "m", 1, on_lost)


async def reserve_soon(quota: RedisQuota, name: str, on_lost: Any = lambda: None) -> QuotaLease:
    """Asks until there is a place, each time for another call: a key that failed is used up."""

    async def look() -> QuotaLease | None:
        try:
            return await reserve(quota, f"{name}-{next(_calls)}", on_lost)
        except (QuotaExceeded, QuotaUnavailable):
            return None

    found = await eventually(look, PATIENCE_S)
    assert found is not None
    return found


@contextmanager
def failing_closed() -> Iterator[None]:
    """The block is answered with QuotaUnavailable, in time."""
    with anyio.fail_after(PATIENCE_S), pytest.raises(QuotaUnavailable):
        yield


async def parts(client: Redis) -> dict[str, int]:
    """Each registered process's part n, as it says itself."""
    found = await client.hgetall(REGISTRY)
    return {name: orjson.loads(record)["held"] for name, record in found.items()}  # type: ignore[misc]  # it decodes


async def until_parted(client: Redis, count: int) -> None:
    """So many processes have joined, and each has its part."""

    async def look() -> bool:
        return list((await parts(client)).values()) == [max(count, 2)] * count

    await eventually(look, PATIENCE_S)


async def flush(client: Redis) -> None:
    await client.flushdb()


async def another_server(client: Redis) -> None:
    await client.hset(INCARNATION, "server", "0" * 40)
