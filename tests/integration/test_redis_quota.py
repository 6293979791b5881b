"""The shared quota when processes die and Redis is down, hung, emptied, replaced or loses a reply."""

import asyncio
import random
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import pytest
from redis.asyncio import Redis

from gateway.adapters.redis.quota import RedisQuota
from gateway.admission.quota import QuotaLease, ReservationKey
from gateway.errors import ConfigurationError, QuotaExceeded, QuotaUnavailable
from tests.harness.process import eventually
from tests.harness.proxy import proxy_to
from tests.harness.redis_server import RedisServer, redis_server

PATIENCE_S = 30
#: never reached by a test: what comes back sooner has been given back
LONG_S = 600
CAP_MS = 2000
SECRET = "the-redis-password"


@asynccontextmanager
async def quota_at(
    url: str, limit: int = 1, lease_s: float = LONG_S, cap_ms: int = CAP_MS, *, opened: bool = True
) -> AsyncIterator[RedisQuota]:
    """One process's view of the quota; ``opened`` spares it the wait of a new installation."""
    if opened:
        async with quota_at(url, cap_ms=10_000, opened=False) as patient:
            await patient.start_incarnation()
    quota = RedisQuota(url, limit, lease_s, cap_ms)
    try:
        yield quota
    finally:
        await quota.aclose()


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Redis]:
    """An operator's client."""
    client: Redis = Redis.from_url(url, decode_responses=True)
    try:
        yield client
    finally:
        await client.aclose()


async def reserve(quota: RedisQuota, name: str) -> QuotaLease:
    return await quota.reserve(ReservationKey(name, 1, "m"), "acme", "m", 1)


async def reserve_soon(quota: RedisQuota, name: str) -> QuotaLease:
    """Asks until there is a place."""

    async def look() -> QuotaLease | None:
        try:
            return await reserve(quota, name)
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


# -- processes --------------------------------------------------------------------------------------


async def test_processes_share_one_limit(redis: RedisServer) -> None:
    """What one gives back, soon after, the other may take; nothing more."""
    url = redis.fresh()
    async with quota_at(url, 2) as one, quota_at(url, 2) as other:
        first = await reserve(one, "r1")
        await reserve(other, "r2")
        for quota in (one, other):
            with pytest.raises(QuotaExceeded):
                await reserve(quota, "r3")
        first.release()
        await reserve_soon(other, "r3")
        with pytest.raises(QuotaExceeded):
            await reserve(one, "r4")


async def test_the_places_of_a_killed_process_come_back(redis: RedisServer) -> None:
    """When their leases run out: nobody gave them back."""
    url, lease_s = redis.fresh(), 3.0
    async with quota_at(url, 2, lease_s) as quota:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.quota_child", url, "2", str(lease_s), "2"],
            stdout=subprocess.PIPE,
        )
        with child:
            try:
                assert child.stdout is not None
                assert await asyncio.to_thread(child.stdout.readline) == b"holding\n"
                with pytest.raises(QuotaExceeded):
                    await reserve(quota, "r1")
            finally:
                child.kill()
        for name in ("r1", "r2"):
            await reserve_soon(quota, name)


async def test_closing_gives_back_what_was_released(redis: RedisServer) -> None:
    """A process that ends in order leaves no lease behind."""
    url = redis.fresh()
    async with quota_at(url, 3) as one:
        for name in ("r1", "r2", "r3"):
            (await reserve(one, name)).release()
    async with quota_at(url, 3) as other:
        for name in ("r1", "r2", "r3"):
            await reserve(other, f"other-{name}")


async def test_a_lease_runs_out_although_others_go_on(redis: RedisServer) -> None:
    """Each by itself: a busy tenant gets a lost place back, too."""
    async with quota_at(redis.fresh(), 2, 0.5) as quota:
        await reserve(quota, "lost")
        await reserve(quota, "busy")

        async def look() -> bool:
            await reserve(quota, "busy")  # again, so that it goes on
            try:
                await reserve(quota, "new")
            except QuotaExceeded:
                return False
            return True

        assert await eventually(look, PATIENCE_S)


async def test_a_release_that_was_not_heard_is_repeated(redis: RedisServer) -> None:
    """Until it is: its place isn't lost for a whole lease time."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, quota_at(url) as other:
        async with quota_at(redis.through(proxy.port, url)) as quota:
            lease = await reserve(quota, "r1")
            await proxy.refuse()
            lease.release()
            with failing_closed():
                await quota.ping()
            await proxy.accept()
            await reserve_soon(other, "r2")


# -- a Redis that doesn't answer --------------------------------------------------------------------


async def test_a_hung_redis_fails_closed_and_leaves_no_ghosts(redis: RedisServer) -> None:
    """What it finds in its sockets when it wakes up takes nobody's place for long."""
    url = redis.fresh()
    async with quota_at(url, 2, cap_ms=500) as quota:
        (await reserve(quota, "before")).release()
        redis.pause()
        try:
            for number in range(3):
                with failing_closed():
                    await reserve(quota, f"hung-{number}")
            with failing_closed():
                await quota.ping()
        finally:
            redis.resume()
        for number in range(2):
            await reserve_soon(quota, f"after-{number}")


async def test_a_redis_that_is_down_fails_closed_and_is_used_again(redis: RedisServer) -> None:
    """Without a restart of ours; the one that came back is empty, so it is closed for a lease time first."""
    async with quota_at(redis.fresh(), lease_s=0.5) as quota:
        await reserve(quota, "before")
        redis.stop()
        try:
            with failing_closed():
                await reserve(quota, "down")
            with failing_closed():
                await quota.ping()
        finally:
            redis.start()
        with failing_closed():
            await reserve(quota, "closed")
        await reserve_soon(quota, "after")
        await quota.ping()


@pytest.mark.parametrize("held", ["requests", "replies"])
async def test_a_lost_message_costs_no_place(redis: RedisServer, held: str) -> None:
    """Whether the reservation has never arrived or has been made and its reply was lost."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, quota_at(url) as other:
        async with quota_at(redis.through(proxy.port, url), cap_ms=500) as quota:
            await quota.ping()
            proxy.stall() if held == "requests" else proxy.hold_replies()
            with failing_closed():
                await reserve(quota, "lost")
            await proxy.cut()
            proxy.flow()
            (await reserve_soon(other, "other")).release()
            await reserve_soon(quota, "again")
            with pytest.raises(QuotaExceeded):
                await reserve(other, "one more")


async def test_a_reservation_that_arrives_after_its_release_takes_no_place(redis: RedisServer) -> None:
    """As when its caller has gone and the two overtake one another."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, quota_at(url) as other:
        async with quota_at(redis.through(proxy.port, url), cap_ms=30_000) as slow:
            await slow.ping()
            proxy.stall()
            late = asyncio.create_task(reserve(slow, "r1"))
            await proxy.held()
            first, again = await reserve(other, "r1"), await reserve(other, "r1")
            first.release()
            second = await reserve_soon(other, "r2")
            again.release()
            second.release()
            await reserve_soon(other, "r3")
            proxy.flow()
            with pytest.raises(QuotaUnavailable) as caught:
                await late
    assert caught.value.detail == "this reservation has been given back already"


# -- a Redis that forgot ----------------------------------------------------------------------------


async def flush(client: Redis) -> None:
    await client.flushdb()


async def another_server(client: Redis) -> None:
    await client.hset("qa-gateway:{quota}:incarnation", "server", "0" * 40)


async def test_a_new_redis_is_closed_for_one_lease_time(redis: RedisServer) -> None:
    """It looks like one that has forgotten everything."""
    async with quota_at(redis.fresh(), lease_s=0.5, opened=False) as quota:
        with pytest.raises(QuotaUnavailable) as caught:
            await reserve(quota, "r1")
        assert 0 < (caught.value.retry_after_ms or 0) <= 500
        await reserve_soon(quota, "r1")


async def test_a_new_installation_needs_no_wait(redis: RedisServer) -> None:
    """But its word counts only where no process has been yet."""
    url = redis.fresh()
    async with quota_at(url, opened=False) as quota:
        assert await quota.start_incarnation()
        await reserve(quota, "r1")
        assert not await quota.start_incarnation()
    async with quota_at(redis.fresh(), opened=False) as quota:
        with failing_closed():
            await quota.ping()
        assert not await quota.start_incarnation()
        with failing_closed():
            await reserve(quota, "r1")


@pytest.mark.parametrize("forget", [flush, another_server])
async def test_lost_leases_close_the_quota_for_every_process(
    redis: RedisServer, forget: Callable[[Redis], Awaitable[None]]
) -> None:
    """Until the calls they stood for must have ended; then it opens by itself."""
    url = redis.fresh()
    async with quota_at(url, lease_s=1.0) as one, quota_at(url, lease_s=1.0) as other, raw(url) as client:
        running = await reserve(one, "running")
        await forget(client)
        for quota in (one, other):
            with failing_closed():
                await reserve(quota, "new")
            with failing_closed():
                await quota.ping()
        running.release()
        with failing_closed():
            await reserve(other, "new")
        await reserve_soon(other, "new")


async def test_a_replica_that_takes_over_is_closed_first(redis: RedisServer, tmp_path: Path) -> None:
    """It may have missed the latest leases, although it has the incarnation."""
    url = redis.fresh()
    with redis_server(tmp_path) as replica:
        replica_url = redis.through(replica.port, url)
        async with quota_at(url) as before, raw(replica_url) as client:
            await reserve(before, "running")
            await client.replicaof("127.0.0.1", redis.port)

            async def copied() -> bool:
                return bool(await client.exists("qa-gateway:{quota}:incarnation"))

            await eventually(copied, PATIENCE_S)
            await client.replicaof("NO", "ONE")
            async with quota_at(replica_url, opened=False) as after:
                assert not await after.start_incarnation()
                with failing_closed():
                    await reserve(after, "new")


async def test_a_forgotten_script_is_loaded_again(redis: RedisServer) -> None:
    """The leases are still there, so nothing is closed."""
    url = redis.fresh()
    async with quota_at(url) as quota, raw(url) as client:
        lease = await reserve(quota, "r1")
        await client.script_flush()
        with pytest.raises(QuotaExceeded):
            await reserve(quota, "r2")
        await client.script_flush()
        lease.release()
        await reserve_soon(quota, "r2")


# -- secrets and rights -----------------------------------------------------------------------------


async def test_denied_access_is_said_and_no_secret_is(redis: RedisServer) -> None:
    """A wrong password, and an account that may not run scripts."""
    url = redis.fresh()
    async with raw(url) as client:
        await client.acl_setuser("reader", enabled=True, passwords=[f"+{SECRET}"], commands=["+ping"])
        for account in ("reader:wrong-password", f"reader:{SECRET}"):
            async with quota_at(url.replace("//", f"//{account}@"), opened=False) as quota:
                with pytest.raises(QuotaUnavailable) as caught:
                    await reserve(quota, "r1")
                assert caught.value.detail == "access to the shared quota was denied"
                told = "".join(traceback.format_exception(caught.value)) + repr(quota)
                assert not any(secret in told for secret in (SECRET, "wrong-password"))
        await client.acl_deluser("reader")


@pytest.mark.parametrize("url", [f"http://:{SECRET}@host", f"redis://:{SECRET}@host:port", SECRET])
def test_a_url_that_means_nothing_is_refused_and_not_repeated(url: str) -> None:
    """At the start, before anything is asked."""
    with pytest.raises(ConfigurationError) as caught:
        RedisQuota(url, 1, 1, 1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


# -- everything at once -----------------------------------------------------------------------------


async def test_never_more_calls_than_the_limit(redis: RedisServer) -> None:
    """Two processes full of callers, while Redis hangs, forgets, and connections break."""
    rng, limit, lease_s = random.Random(7), 3, 1.0
    url = redis.fresh()
    running: list[float] = []
    most = answered = 0

    async def call(quota: RedisQuota, name: str) -> None:
        nonlocal most, answered
        try:
            lease = await reserve(quota, name)
        except (QuotaExceeded, QuotaUnavailable):
            await anyio.sleep(0.005)
            return
        answered += 1
        started = time.monotonic()
        running.append(started)
        most = max(most, len(running))
        await anyio.sleep(rng.uniform(0, 0.02))
        running.remove(started)
        lease.release()

    async def caller(quota: RedisQuota, name: str) -> None:
        number = 0
        while True:
            await call(quota, f"{name}-{number}")
            number += 1

    async with proxy_to(redis.port) as proxy, raw(url) as client:
        through = redis.through(proxy.port, url)
        async with quota_at(url, limit, lease_s, 300) as one, quota_at(through, limit, lease_s, 300) as other:
            async with anyio.create_task_group() as tasks:
                for number in range(6):
                    tasks.start_soon(caller, one, f"one-{number}")
                    tasks.start_soon(caller, other, f"other-{number}")

                async def goes_on() -> None:
                    until = answered + 20

                    async def look() -> bool:
                        return answered >= until

                    await eventually(look, PATIENCE_S)

                for _ in range(2):
                    await goes_on()
                    await proxy.cut()
                    await client.script_flush()
                    await goes_on()
                    redis.pause()
                    await anyio.sleep(0.2)
                    redis.resume()
                await client.flushdb()
                await goes_on()
                tasks.cancel_scope.cancel()
    assert most == limit
