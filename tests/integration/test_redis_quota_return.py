"""A process that was on its own comes back, or leaves: nothing is used a second time."""

from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits
from tests.harness.process import eventually
from tests.harness.redis_server import RedisServer
from tests.integration.quota_pair import pair, take, until_alone
from tests.integration.quota_world import PATIENCE_S, parts, quota_at, terms, until_parted

LIMIT = 12


async def test_a_process_that_was_forgotten_comes_back_without_its_part(redis: RedisServer) -> None:
    """Another one has it by then. At no moment are the parts more than the whole; in the end all have one."""
    told = terms(LIMIT, 0.3, 0.0, forget_s=1.0)
    async with pair(redis, told) as two:
        await two.proxy.refuse()

        async def forgotten() -> bool:
            return "far" not in await parts(two.client)

        await eventually(forgotten, PATIENCE_S)
        async with quota_at(two.url, told, "third", 1000, opened=False) as third:
            third.start()
            await until_parted(two.client, 2)
            await two.proxy.accept()

            async def parted() -> bool:
                found = await parts(two.client)
                assert sum(1 / n for n in found.values() if n) < 1.01
                return list(found.values()) == [3, 3, 3]

            await eventually(parted, PATIENCE_S)


async def test_who_leaves_before_a_beat_tells_what_it_has_used_alone(redis: RedisServer) -> None:
    """Redis is back only when the process ends: its requests of this window are withheld all the same."""
    rated = QuotaTerms(
        tenant=QuotaLimits(None, requests_per_minute=LIMIT), lease_s=0.5, total_cap_s=0.0, window_s=1.5
    )
    async with pair(redis, rated) as two:
        await two.proxy.refuse()
        await until_alone(two.far)
        assert len(await take(two.far, "far", LIMIT)) == LIMIT // 2 - 1
        await two.proxy.accept()
        await two.far.aclose()
        assert len(await take(two.near, "near", LIMIT)) == LIMIT // 2
