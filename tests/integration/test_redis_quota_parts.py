"""Parts: what each process may use by itself when it can't reach Redis, and that nobody else uses it."""

import functools
import itertools
import time

import anyio
import pytest
from redis.asyncio import Redis

from gateway.adapters.redis.places import SILENT
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLimits
from gateway.errors import QuotaExceeded, QuotaUnavailable
from tests.harness.process import eventually
from tests.harness.proxy import proxy_to
from tests.harness.redis_server import RedisServer
from tests.integration.quota_pair import CAP_MS, CAP_S, LEASE_S, LIMIT, TERMS, pair, take, until_alone
from tests.integration.quota_world import (
    PATIENCE_S,
    crash,
    parts,
    quota_at,
    raw,
    reserve,
    reserve_soon,
    terms,
    until_parted,
)


async def test_a_process_that_is_cut_off_goes_on_within_its_part(redis: RedisServer) -> None:
    """After a time in which it starts nothing; the others keep to the rest, and it comes back by itself."""
    async with pair(redis) as two:
        await two.proxy.refuse()
        with pytest.raises(QuotaUnavailable):
            await reserve(two.far, "too early")
        with pytest.raises(QuotaUnavailable):
            await two.far.ping()
        alone = await until_alone(two.far)
        assert len(await take(two.far, "alone")) == LIMIT // 2 - 1
        near = await take(two.near, "near")
        assert len(near) == LIMIT // 2
        await two.proxy.accept()
        near[0].release()
        alone.release()
        for name in ("after-1", "after-2"):
            await reserve_soon(two.far, name)
        with pytest.raises(QuotaExceeded):
            await reserve(two.near, "one more")


async def test_a_redis_that_is_down_leaves_each_process_its_part(redis: RedisServer) -> None:
    """All together the limit; when Redis is back it hears of the calls that are running."""
    async with pair(redis) as two:
        redis.stop()
        try:
            running = [await until_alone(two.near, "near"), await until_alone(two.far, "far")]
            assert len(await take(two.near, "near")) == LIMIT // 2 - 1
            assert len(await take(two.far, "far")) == LIMIT // 2 - 1
        finally:
            redis.start()

        async def opened() -> bool:
            try:
                await reserve(two.near, "full")
            except QuotaUnavailable:
                return False
            except QuotaExceeded:
                return True
            raise AssertionError("more than the limit")

        await eventually(opened, PATIENCE_S)
        for lease in running:
            lease.release()
        await reserve_soon(two.near, "after-1")
        await reserve_soon(two.far, "after-2")
        with pytest.raises(QuotaExceeded):
            await reserve(two.near, "one more")


async def test_calls_beyond_the_part_end_before_their_leases_do(redis: RedisServer) -> None:
    """The newest first; those within it go on."""
    async with pair(redis, terms(LIMIT, 1.0, CAP_S)) as two:
        lost: list[str] = []
        told = anyio.Event()

        def lose(name: str) -> None:
            lost.append(name)
            told.set()

        for name in ("a", "b", "c", "d"):
            await reserve(two.far, name, functools.partial(lose, name))
        with pytest.raises(QuotaExceeded):
            await reserve(two.near, "none")
        await two.proxy.refuse()
        with anyio.fail_after(PATIENCE_S):
            await told.wait()
        with pytest.raises(QuotaExceeded):  # Redis hasn't given its places away yet
            await reserve(two.near, "none")
        await reserve_soon(two.near, "near-1")
        await reserve_soon(two.near, "near-2")
        with pytest.raises(QuotaExceeded):
            await reserve(two.near, "near-3")
        assert lost == ["c", "d"]


async def test_a_flush_doesnt_free_the_part_of_who_is_cut_off(redis: RedisServer) -> None:
    """The others tell the new incarnation of it."""
    async with pair(redis) as two:
        await two.proxy.refuse()
        await two.client.flushdb()
        await until_alone(two.far)
        assert len(await take(two.far, "alone")) == LIMIT // 2 - 1
        first = await reserve_soon(two.near, "near")
        assert len(await take(two.near, "near")) == LIMIT // 2 - 1
        assert await parts(two.client) == {"near": 2, "far": 2}
        first.release()


async def test_a_process_that_hears_nothing_goes_on_alone(redis: RedisServer) -> None:
    """Though it may be heard: its part is withheld."""
    async with pair(redis) as two:
        two.proxy.hold_replies()
        await until_alone(two.far)
        assert len(await take(two.far, "alone")) == LIMIT // 2 - 1
        assert len(await take(two.near, "near")) == LIMIT // 2
        two.proxy.flow()


@pytest.mark.soak
async def test_a_newcomer_has_no_part_while_the_whole_is_given_away(redis: RedisServer) -> None:
    """One that is cut off can't hear that it must do with less."""
    async with pair(redis) as two, proxy_to(redis.port) as proxy:
        await two.proxy.refuse()
        third_url = redis.through(proxy.port, two.url)
        async with quota_at(third_url, TERMS, "third", CAP_MS, opened=False) as third:
            third.start()

            async def joined() -> bool:
                found = await parts(two.client)
                return found.get("third") == 0 and found["near"] == 3

            await eventually(joined, PATIENCE_S)
            await proxy.refuse()
            await until_alone(two.far)
            with anyio.move_on_after(TERMS.quiet_s + TERMS.margin_s + CAP_S):
                for number in itertools.count():
                    with pytest.raises(QuotaUnavailable):
                        await reserve(third, f"third-{number}")
                    await anyio.sleep(0.01)
            await two.proxy.accept()
            await proxy.accept()
            await until_parted(two.client, 3)


async def test_parts_never_add_up_to_more_than_the_whole(redis: RedisServer) -> None:
    """While processes come, leave and crash; in the end each has its own."""
    url = redis.fresh()
    most = 0.0

    async def watch(client: Redis) -> None:
        nonlocal most
        while True:
            most = max(most, sum(1 / n for n in (await parts(client)).values() if n))
            await anyio.sleep(0.002)

    async with raw(url) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(watch, client)
        async with quota_at(url, TERMS, "a") as a, quota_at(url, TERMS, "b") as b:
            a.start()
            b.start()
            await until_parted(client, 2)
            async with quota_at(url, TERMS, "c") as c, quota_at(url, TERMS, "d") as d:
                c.start()
                d.start()
                await until_parted(client, 4)
                await crash(d)
                async with quota_at(url, TERMS, "d") as again:
                    again.start()
                    await until_parted(client, 4)
            await until_parted(client, 2)
        tasks.cancel_scope.cancel()
    assert 0.99 < most < 1.01


async def test_a_crashed_process_is_forgotten_at_last(redis: RedisServer) -> None:
    """Until then its part is withheld, though its leases have run out."""
    told = terms(LIMIT, 0.2, 0.05, forget_s=1.5)
    async with pair(redis, told) as two:
        await reserve(two.far, "gone")
        await crash(two.far)

        async def silent() -> bool:
            seconds, micros = await two.client.time()
            return (await two.client.zscore(SILENT, "far") or 0) <= seconds * 1000 + micros / 1000

        await eventually(silent, PATIENCE_S)
        await reserve_soon(two.near, "near-1")
        await reserve_soon(two.near, "near-2")
        with pytest.raises(QuotaExceeded):
            await reserve(two.near, "near-3")
        for name in ("near-3", "near-4"):
            await reserve_soon(two.near, name)
        assert list(await parts(two.client)) == ["near"]


async def test_a_process_that_leaves_takes_its_part_with_it(redis: RedisServer) -> None:
    """At once: it is over."""
    async with pair(redis) as two:
        await two.far.aclose()
        assert len(await take(two.near, "near")) == LIMIT


async def test_two_processes_of_one_name_are_noticed(redis: RedisServer) -> None:
    """The newer one has it; the older one starts nothing and says why, until the newer one has left."""
    async with pair(redis) as two:
        async with quota_at(two.url, TERMS, "far", opened=False) as newer:
            newer.start()

            async def noticed() -> bool:
                try:
                    await two.far.ping()
                except QuotaUnavailable as error:
                    return "name" in error.detail
                return False

            await eventually(noticed, PATIENCE_S)
            with pytest.raises(QuotaUnavailable):
                await reserve(two.far, "r1")
            await reserve(newer, "r1")
        await reserve_soon(two.far, "r2")


@pytest.mark.soak
async def test_rates_that_were_used_alone_stay_withheld_for_a_window(redis: RedisServer) -> None:
    """From the others, who else could use them a second time."""
    window_s = 1.2
    told = QuotaTerms(
        tenant=QuotaLimits(100, requests_per_minute=LIMIT),
        lease_s=LEASE_S,
        total_cap_s=CAP_S,
        window_s=window_s,
    )
    async with pair(redis, told) as two:
        await two.proxy.refuse()
        await until_alone(two.far)
        assert len(await take(two.far, "alone")) == LIMIT // 2 - 1
        used_at = time.monotonic()
        await two.proxy.accept()

        async def back() -> bool:
            return bool(vars(two.far)["_standing"].is_in_touch(time.monotonic()))

        await eventually(back, PATIENCE_S)
        taken = len(await take(two.near, "near"))
        while time.monotonic() < used_at + window_s - 0.1:
            taken += len(await take(two.near, f"near-{time.monotonic()}"))
            await anyio.sleep(0.01)
        assert taken == LIMIT // 2

        await reserve_soon(two.near, "after")
