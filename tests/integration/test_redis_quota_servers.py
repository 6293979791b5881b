"""The shared quota behind Sentinel, and on servers that refuse."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError, ResponseError

from gateway.adapters.redis.addresses import Addresses
from gateway.adapters.redis.quota import RedisQuota
from gateway.errors import ConfigurationError, QuotaExceeded
from tests.harness.process import eventually
from tests.harness.redis_server import RedisServer, redis_server
from tests.integration.quota_world import (
    PATIENCE_S,
    failing_closed,
    quota_at,
    raw,
    reserve,
    reserve_soon,
    terms,
)

SERVICE = "quota"
T = TypeVar("T", bound=RedisServer)


class Sentinel(RedisServer):
    """Decides alone, and soon, about the primary on ``primary_port``."""

    def __init__(self, folder: Path, primary_port: int) -> None:
        super().__init__(folder)
        self._configuration = folder / "sentinel.conf"
        self._configuration.write_text(
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary_port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 300\n"
            f"sentinel failover-timeout {SERVICE} 2000\n"
        )

    def _options(self) -> list[str]:
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._configuration.parent)]
        return [str(self._configuration), "--sentinel", *where]


@contextmanager
def running(server: T) -> Iterator[T]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


async def tell(client: Redis, *words: str | int) -> Any:
    return await client.execute_command(*words)  # type: ignore[no-untyped-call]  # redis-py's


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def test_sentinel_tells_where_the_primary_is(redis: RedisServer, tmp_path: Path) -> None:
    """It is asked when we connect."""
    with running(Sentinel(tmp_path, redis.port)) as sentinel:
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/{redis.fresh().rpartition('/')[2]}"
        async with quota_at(url, terms(1)) as quota:
            assert not (await quota.server()).evicts
            await reserve(quota, "r1")
            with pytest.raises(QuotaExceeded):
                await reserve(quota, "r2")


@pytest.mark.soak
async def test_a_failover_is_followed(tmp_path: Path) -> None:
    """The new primary is closed first, then all goes on without a restart."""
    async with AsyncExitStack() as stack:
        one = stack.enter_context(redis_server(made(tmp_path / "one")))
        two = stack.enter_context(redis_server(made(tmp_path / "two")))
        sentinel = stack.enter_context(running(Sentinel(made(tmp_path / "sentinel"), one.port)))
        replica, asked = [await stack.enter_async_context(raw(each.url)) for each in (two, sentinel)]
        await replica.replicaof("127.0.0.1", one.port)

        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0"
        quota = await stack.enter_async_context(quota_at(url, terms(1, lease_s=0.5)))
        lease = await reserve(quota, "before")

        async def failing_over() -> bool:
            try:
                return bool(await tell(asked, "SENTINEL", "FAILOVER", SERVICE))
            except ResponseError:  # it doesn't know the replica well enough yet
                return False

        await eventually(failing_over, PATIENCE_S)

        async def moved() -> bool:
            try:
                return str((await replica.info("replication"))["role"]) == "master"
            except ConnectionError:  # it cuts its clients off then
                return False

        await eventually(moved, PATIENCE_S)
        one.stop()
        lease.release()
        await reserve_soon(quota, "after")


# -- servers that refuse ----------------------------------------------------------------------------


async def test_a_replica_refuses_and_is_no_quota(redis: RedisServer, tmp_path: Path) -> None:
    """READONLY, and MASTERDOWN when it has lost its primary: neither is an answer."""
    with redis_server(tmp_path) as replica:
        async with raw(replica.url) as client:
            async with quota_at(replica.url) as quota:
                (await reserve(quota, "before")).release()
                await client.replicaof("127.0.0.1", redis.port)
                with failing_closed():
                    await reserve(quota, "r1")
                await client.config_set("replica-serve-stale-data", "no")
                await client.replicaof("127.0.0.1", 1)
                with failing_closed():
                    await reserve(quota, "r2")


async def test_a_full_redis_refuses_and_recovers(redis: RedisServer) -> None:
    """Nothing is half done, and what is over is given back."""
    url = redis.fresh()
    async with quota_at(url, terms(1)) as quota, raw(url) as client:
        lease = await reserve(quota, "before")
        await client.config_set("maxmemory", 1)
        try:
            lease.release()

            async def given_back() -> bool:
                return not await client.exists("qa-gateway:{quota}:leases:tenant:acme")

            await eventually(given_back, PATIENCE_S)
            with failing_closed():
                await reserve(quota, "full")
        finally:
            await client.config_set("maxmemory", 0)
        await reserve_soon(quota, "after")
        with pytest.raises(QuotaExceeded):
            await reserve(quota, "one more")


async def test_a_script_that_runs_for_ever_is_killed_and_forgotten(redis: RedisServer) -> None:
    """Somebody else's: BUSY meanwhile, and afterwards all is as before."""
    url = redis.fresh()
    async with quota_at(url, terms(1), cap_ms=300) as quota, raw(url) as client, raw(url) as other:
        await reserve(quota, "before")
        await client.config_set("busy-reply-threshold", 1)
        endless = asyncio.create_task(tell(other, "EVAL", "while true do end", 0))

        async def busy() -> bool:
            try:
                return not await client.ping()
            except ResponseError:
                return True

        await eventually(busy, PATIENCE_S)
        with failing_closed():
            await reserve(quota, "busy")
        await client.script_kill()
        with pytest.raises(ResponseError):
            await endless
        with pytest.raises(QuotaExceeded):
            await reserve(quota, "after")
        await client.config_set("busy-reply-threshold", 5000)


# -- URLs -------------------------------------------------------------------------------------------


def test_urls_of_more_than_one_server_are_read() -> None:
    """Names, passwords, several hosts, and IPv6; no password shows."""
    found = Addresses.parse("rediss+sentinel://u%40:p%2F@a:1,[::1]:2,c/main/3?sentinel_password=s")
    assert found is not None
    assert (found.kind, found.tls, found.service, found.database) == ("sentinel", True, "main", 3)
    assert found.hosts == (("a", 1), ("::1", 2), ("c", 26379))
    assert (found.username, found.password, found.sentinel_password) == ("u@", "p/", "s")
    assert "p/" not in repr(found)
    cluster = Addresses.parse("redis+cluster://:pw@a,b:7000")
    assert cluster is not None
    assert (cluster.kind, cluster.hosts, cluster.password) == ("cluster", (("a", 6379), ("b", 7000)), "pw")
    assert Addresses.parse("redis://a,b") is None


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:secret@a:1",
        "redis+cluster://:secret@a:1/2",
        "redis+cluster://:secret@",
        "redis+other://:secret@a",
        "http+cluster://:secret@a",
        "redis+sentinel://:secret@a:x/main",
    ],
)
def test_such_a_url_that_means_nothing_is_refused(url: str) -> None:
    """Without quoting it."""
    with pytest.raises(ConfigurationError) as caught:
        RedisQuota(url, terms(), "p", 100)
    assert "secret" not in str(caught.value)
