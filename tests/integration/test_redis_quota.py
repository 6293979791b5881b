"""The shared quota when processes die and Redis is down, hung, emptied, replaced or loses a reply."""

import asyncio
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from redis.asyncio import Redis

from gateway.adapters.redis.quota import RedisQuota
from gateway.errors import ConfigurationError, QuotaExceeded, QuotaUnavailable
from tests.harness.process import eventually
from tests.harness.proxy import proxy_to
from tests.harness.redis_server import RedisServer, redis_server
from tests.integration.quota_world import (
    PATIENCE_S,
    another_server,
    crash,
    failing_closed,
    flush,
    quota_at,
    raw,
    reserve,
    reserve_soon,
    terms,
    until_parted,
)

SECRET = "the-redis-password"


# -- processes --------------------------------------------------------------------------------------


async def test_processes_share_one_limit(redis: RedisServer) -> None:
    """What one gives back, soon after, the other may take; nothing more."""
    url = redis.fresh()
    async with quota_at(url, terms(2)) as one, quota_at(url, terms(2)) as other:
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
    """When their leases run out, all but the part that it might be using by itself; not before."""
    url, told = redis.fresh(), terms(2, lease_s=1.0)
    async with quota_at(url, told) as quota:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.quota_child", url, "2", "1.0", "2"],
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
        await reserve_soon(quota, "r1")


async def test_closing_gives_back_what_was_released(redis: RedisServer) -> None:
    """A process that ends in order leaves no lease behind."""
    url = redis.fresh()
    async with quota_at(url, terms(3)) as one:
        for name in ("r1", "r2", "r3"):
            (await reserve(one, name)).release()
    async with quota_at(url, terms(3)) as other:
        for name in ("r1", "r2", "r3"):
            await reserve(other, f"other-{name}")


async def test_a_lease_lives_as_long_as_its_call(redis: RedisServer) -> None:
    """It is renewed: one of a quarter of a second outlasts a whole one, and then comes back."""
    url, told = redis.fresh(), terms(2, lease_s=0.25)
    async with quota_at(url, told) as one, quota_at(url, told) as other:
        lost: list[str] = []
        first = await reserve(one, "r1", lambda: lost.append("r1"))
        await reserve(one, "r2", lambda: lost.append("r2"))
        with anyio.move_on_after(1.0):
            while True:
                with pytest.raises(QuotaExceeded):
                    await reserve(other, "new")
                await anyio.sleep(0.01)
        assert lost == []
        first.release()
        await reserve_soon(other, "new")


async def test_a_crashed_process_loses_only_its_own_leases(redis: RedisServer) -> None:
    """Others go on renewing theirs of the same tenant; a successor of its name takes its place."""
    url, told = redis.fresh(), terms(2, lease_s=0.3)
    async with quota_at(url, told, "crashing") as crashing, quota_at(url, told) as other, raw(url) as client:
        await reserve(other, "busy")
        await reserve(crashing, "gone")
        await until_parted(client, 2)
        await crash(crashing)
        async with quota_at(url, told, "crashing") as successor:
            lease = await reserve_soon(successor, "new")
            with pytest.raises(QuotaExceeded):
                await reserve(other, "one more")
            await until_parted(client, 2)
            lease.release()
            await reserve_soon(other, "another")


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
    async with quota_at(url, terms(2), cap_ms=500) as quota:
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
    async with quota_at(redis.fresh(), terms(lease_s=0.5)) as quota:
        running = await reserve(quota, "before")
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
        running.release()
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


async def test_a_new_redis_is_closed_for_one_lease_time(redis: RedisServer) -> None:
    """It looks like one that has forgotten everything."""
    async with quota_at(redis.fresh(), terms(lease_s=0.5), opened=False) as quota:
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
    told = terms(lease_s=1.0)
    async with quota_at(url, told) as one, quota_at(url, told) as other, raw(url) as client:
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
        RedisQuota(url, terms(), "p", 1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
