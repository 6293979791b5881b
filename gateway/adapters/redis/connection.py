"""The door to Redis: a client with bounded times and no retries of its own, and its errors in our words.

What is asked must be harmless when it is asked twice: a reply that gets lost leaves open whether Redis
has done it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError
from redis.maint_notifications import MaintNotificationsConfig

from gateway.errors import ConfigurationError, QuotaUnavailable

_CONNECTIONS = 16


def open_redis(url: str, wait_ms: int) -> Redis:
    """A client for ``redis://``, ``rediss://`` or ``unix://``; connects when first asked.

    Each single wait (for a connection of the pool, for connecting, for a reply) lasts at most
    ``wait_ms``. Raises ConfigurationError for a URL that means nothing, without quoting it.
    """
    seconds = wait_ms / 1000
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            timeout=seconds,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
            # with them on, redis-py no longer looks whether the server has closed an idle connection
            protocol=2,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
        )
    except (ValueError, TypeError, RedisError):
        raise ConfigurationError("redis_url", "GATEWAY_REDIS_URL is not a Redis URL") from None
    client: Redis = Redis.from_pool(pool)
    return client


@contextmanager
def redis_errors() -> Iterator[None]:
    """Raises QuotaUnavailable for whatever goes wrong between here and Redis, and in it."""
    try:
        yield
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        raise QuotaUnavailable("access to the shared quota was denied") from error
    except (RedisError, OSError) as error:
        raise QuotaUnavailable(retry_after_ms=1000) from error
