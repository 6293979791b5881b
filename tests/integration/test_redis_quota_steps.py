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
#: tokens of the limit when one process has used its half alone
REST = 50
#: of beats, until each process has the part that all have heard of
ROUNDS = 6


@asynccontextmanager
async def steps_at(url: str) -> AsyncIterator[QuotaSteps]:
    steps = QuotaSteps(url, TERMS, 5000)
    await steps.start()
    try:
        yield steps
    finally:
        await steps.aclose(1)


async def beat(steps: QuotaSteps, standing: Standing, alone_ms: int | None = None) -> None:
    """One that is answered at once."""
    reply = await steps.beat(standing, alone_ms, [])
    standing.answered(time.monotonic(), time.monotonic(), reply)


async def joined(steps: QuotaSteps, *names: str) -> list[Standing]:
    """Processes that all have beaten until each has its part."""
    standings = [Standing(TERMS, name) for name in names]
    for _ in range(ROUNDS):
        for standing in standings:
            await beat(steps, standing)
    assert [standing.part for standing in standings] == [max(len(names), 2)] * len(names)
    return standings


async def room(steps: QuotaSteps) -> int:
    """Tokens that are left to whoever asks."""
    reply = await steps.reserve(PLACE, 101)
    assert (reply.word, reply.kind) == ("over", "tokens")
    return reply.room


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


# -- parts ------------------------------------------------------------------------------------------


async def test_a_part_that_was_given_to_others_isnt_taken_on_trust(redis: RedisServer) -> None:
    """It is withheld until the process is known to have heard; then there is a part for everybody."""
    async with steps_at(redis.fresh()) as steps:
        late = Standing(TERMS, "late", part=2, heard_ms=1)
        others = await joined(steps, "a", "b")
        reply = await steps.beat(late, None, [])
        assert (reply.word, reply.part) == ("open", 0)
        assert await room(steps) == REST
        late.part = 2  # the reply was lost
        await beat(steps, late)
        assert late.part == 0
        for _ in range(ROUNDS):
            for each in (*others, late):
                await beat(steps, each)
                assert sum(1 / one.part for one in (*others, late) if one.part) < 1.01
        assert [each.part for each in (*others, late)] == [3, 3, 3]
        assert await room(steps) == 100


async def test_what_was_used_alone_stays_withheld_when_the_part_shrinks(redis: RedisServer) -> None:
    """By the part it was used by: tokens of a half, though the process has a third by now."""
    async with steps_at(redis.fresh()) as steps:
        used, other = await joined(steps, "used", "other")
        newcomer = Standing(TERMS, "newcomer")
        for _ in range(ROUNDS):
            for each in (used, other, newcomer):
                await beat(steps, each, 1000 if each is used else None)
        assert used.part == 3
        assert await room(steps) == REST
        used.part = 0  # it has given it up
        await beat(steps, used, 2000)
        assert await room(steps) == REST


async def test_a_successor_keeps_what_was_used_alone_withheld(redis: RedisServer) -> None:
    """Its predecessor has used a half, and died silent with a third."""
    url = redis.fresh()
    async with steps_at(url) as steps, raw(url) as client:
        used, other = await joined(steps, "used", "other")
        await beat(steps, used, 1000)
        newcomer = Standing(TERMS, "newcomer")
        for _ in range(ROUNDS):
            for each in (used, other, newcomer):
                await beat(steps, each)
        assert used.part == 3
        await client.zadd(SILENT, {"used": 0})
        await beat(steps, Standing(TERMS, "used"))
        assert await room(steps) == REST


async def test_who_leaves_tells_what_it_has_used_alone(redis: RedisServer) -> None:
    """There may have been no beat since; what was used longer ago than the window counts no more."""
    async with steps_at(redis.fresh()) as steps:
        recent, old = await joined(steps, "recent", "old")
        await steps.leave(old, 61_000)
        assert await room(steps) == 100
        await steps.leave(recent, 1000)
        assert await room(steps) == REST
