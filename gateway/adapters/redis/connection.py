"""The door to Redis: a client with bounded times and no retries of its own, and its errors in our words.

What is asked must be harmless when it is asked twice: a reply that gets lost leaves open whether Redis
has done it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)
from redis.maint_notifications import MaintNotificationsConfig

from gateway.adapters.redis.addresses import Addresses
from gateway.errors import ConfigurationError, QuotaUnavailable

Client = Redis | RedisCluster

#: whatever goes wrong between here and Redis, and in it
ERRORS = (RedisError, RedisClusterException, OSError)

_CONNECTIONS = 16


def open_redis(url: str, wait_ms: int, *, decoded: bool = True) -> Client:
    """A client for ``redis://``, ``rediss://``, ``unix://``, or the URLs of ``Addresses``; connects when
    first asked.

    Each single wait (for a connection of the pool, for connecting, for a reply) lasts at most
    ``wait_ms``. ``decoded``: replies are text. Raises ConfigurationError for a URL that means nothing,
    without quoting it.
    """
    seconds = wait_ms / 1000
    given: dict[str, Any] = {
        "socket_timeout": seconds,
        "socket_connect_timeout": seconds,
        "decode_responses": decoded,
        # with them on, redis-py no longer looks whether the server has closed an idle connection
        "protocol": 2,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
    try:
        addresses = Addresses.parse(url)
        if addresses is None:
            return _of_server(url, given, seconds)
        return (
            _of_cluster(addresses, given) if addresses.kind == "cluster" else _of_sentinels(addresses, given)
        )
    except (ValueError, TypeError, RedisError, RedisClusterException):
        raise ConfigurationError("redis_url", "GATEWAY_REDIS_URL is not a Redis URL") from None


async def close_redis(client: Client) -> None:
    """With the connections to the sentinels, which redis-py leaves open."""
    pool = None if isinstance(client, RedisCluster) else client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        for sentinel in pool.sentinel_manager.sentinels:
            await sentinel.aclose()
    await client.aclose()


def _of_server(url: str, given: dict[str, Any], seconds: float) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url, max_connections=_CONNECTIONS, timeout=seconds, retry=_never(), **given
    )
    client: Redis = Redis.from_pool(pool)
    return client


def _of_sentinels(addresses: Addresses, given: dict[str, Any]) -> Redis:
    """Asks the sentinels for the primary whenever it connects."""
    primary: dict[str, Any] = {**given, "ssl": addresses.tls, "retry": _never()}
    asking = {**primary, "password": addresses.sentinel_password}
    sentinel = Sentinel(addresses.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]  # redis-py's
    client: Redis = sentinel.master_for(
        addresses.service,
        db=addresses.database,
        username=addresses.username,
        password=addresses.password,
        max_connections=_CONNECTIONS * 2,  # beyond them it raises; steps are kept to fewer
        **primary,
    )
    return client


def _of_cluster(addresses: Addresses, given: dict[str, Any]) -> RedisCluster:
    """The nodes are those to begin with; it follows MOVED and ASK by itself."""
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in addresses.hosts],
        username=addresses.username,
        password=addresses.password,
        ssl=addresses.tls,
        retry=_never(),
        max_connections=_CONNECTIONS * 2,
        **given,
    )


def _never() -> Retry:
    return Retry(NoBackoff(), 0)


@contextmanager
def redis_errors() -> Iterator[None]:
    """Raises QuotaUnavailable."""
    try:
        yield
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        raise QuotaUnavailable("access to the shared quota was denied") from error
    except ERRORS as error:
        raise QuotaUnavailable(retry_after_ms=1000) from error
