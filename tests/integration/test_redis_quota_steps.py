"""The quota's steps in Redis by themselves: what a repeated, lost or late one changes."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.adapters.redis.places import SILENT, Place
from gateway.adapters.redis.standing import Standing
from gateway.adapters.redis.steps import QuotaSteps
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits, ReservationKey
from tests.harness.redis_server import RedisServer
from tests.integration.quota_world import raw

TERMS = QuotaTerms(tenant=QuotaLimits(4, tokens_per_minute=100), lease_s=60, total_cap_s=0)
PLACE = Place.of(ReservationKey("r1", 1, "m"), *TERMS.budgets("acme", "m"))


@asynccontextmanager
async def steps_at(url: str) -> AsyncIterator[QuotaSteps]:
    steps = QuotaSteps(url, TERMS, 5000)
    await steps.start()
    try:
        yield steps
    finally:
        await steps.aclose(1)


async def test_a_settlement_is_booked_once(redis: RedisServer) -> None:
    """Its reply may have been lost: it is said again, and another word after it changes nothing."""
    url = redis.fresh()
    async with steps_at(url) as steps, raw(url) as client:
        assert (await steps.reserve(PLACE, 90)).word == "held"
        for used in (40, 40, 0, "never"):
            await steps.settle(PLACE, used)
        use = await client.hgetall(PLACE.keys[2])
        assert sum(int(amount) for name, amount in use.items() if str(name).startswith("t")) == 40
        assert (await steps.reserve(PLACE, 90)).word == "spent"


async def test_only_a_reply_that_was_heard_keeps_a_process_from_silence(redis: RedisServer) -> None:
    """Beats may arrive as often as they like: a process that hears nothing will go on alone."""
    url = redis.fresh()
    standing = Standing(TERMS, "p")
    async with steps_at(url) as steps, raw(url) as client:
        heard = await steps.beat(standing, None, [])
        standing.answered(time.monotonic(), time.monotonic(), heard)
        for _ in range(3):
            await steps.beat(standing, None, [])
            assert await client.zscore(SILENT, "p") == heard.now_ms + 60_000


async def test_a_beat_that_was_overtaken_changes_nothing(redis: RedisServer) -> None:
    """It says what isn't so any more."""
    url = redis.fresh()
    standing = Standing(TERMS, "p")
    async with steps_at(url) as steps:
        assert (await steps.beat(standing, None, [])).word == "open"
        standing.number -= 1
        assert (await steps.beat(standing, None, [])).word == "stale"
