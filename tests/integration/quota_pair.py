"""Two processes that share a quota and have their parts, one of them where it can be cut off."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLease
from gateway.errors import QuotaExceeded, QuotaUnavailable
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.redis_server import RedisServer
from tests.integration.quota_world import quota_at, raw, reserve, reserve_soon, terms, until_parted

LEASE_S, CAP_S = 0.4, 0.2
CAP_MS = 100
LIMIT = 4
TERMS = terms(LIMIT, LEASE_S, CAP_S)


@dataclass(frozen=True)
class Pair:
    """Two processes that have their parts, one of them behind a proxy that may cut it off."""

    near: RedisQuota
    far: RedisQuota
    proxy: Proxy
    client: Redis
    url: str
    far_url: str


@asynccontextmanager
async def pair(redis: RedisServer, told: QuotaTerms = TERMS) -> AsyncIterator[Pair]:
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, raw(url) as client:
        far_url = redis.through(proxy.port, url)
        async with quota_at(url, told, "near", 1000) as near:
            async with quota_at(far_url, told, "far", CAP_MS, opened=False) as far:
                near.start()
                far.start()
                await until_parted(client, 2)
                yield Pair(near, far, proxy, client, url, far_url)


async def take(quota: RedisQuota, name: str, most: int = LIMIT + 1) -> list[QuotaLease]:
    """As many places as it gives now."""
    leases = []
    for number in range(most):
        try:
            leases.append(await reserve(quota, f"{name}+{number}"))
        except (QuotaExceeded, QuotaUnavailable):
            break
    return leases


async def until_alone(quota: RedisQuota, name: str = "alone") -> QuotaLease:
    """It has been cut off for long enough to go on by itself; its first call."""
    lease = await reserve_soon(quota, name)
    assert vars(quota)["_standing"].is_alone(time.monotonic())
    await quota.ping()
    return lease
