"""RedisQuota: running calls a tenant and model, counted over all processes by leases in Redis.

Each step is one script, repeats change nothing, and all times are Redis' own. Redis doesn't promise
to keep what it was told: a restart, a failover or a flush may take leases of running calls away. So an
incarnation names the server that has heard of every lease; when it is gone, or names another server,
nobody starts a call until every lease that may have been lost has run out.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote

from gateway.adapters.redis.connection import open_redis, redis_errors
from gateway.admission.quota import QuotaLease, ReservationKey
from gateway.errors import QuotaExceeded, QuotaUnavailable

T = TypeVar("T")

#: one hash tag: the incarnation must live, and be lost, with the leases it speaks for
_PREFIX = "qa-gateway:{quota}"
_INCARNATION = f"{_PREFIX}:incarnation"

#: places given back side by side
_AT_ONCE = 8
_AGAIN_S = 0.2
_CLOSE_S = 1.0

# KEYS: incarnation. ARGV: lease in ms. The replication id changes with every start and every promotion.
_NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local server = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
"""
_STANDING = (
    _NOW
    + """
local known = redis.call('HMGET', KEYS[1], 'server', 'opens_ms')
if known[1] ~= server then
  known[2] = now + ARGV[1]
  redis.call('HSET', KEYS[1], 'server', server, 'opens_ms', known[2])
end
if now < tonumber(known[2]) then return {'closed', known[2] - now} end
"""
)
_LOOK = _STANDING + "return {'open', 0}"

# KEYS: incarnation, leases, spent. ARGV: lease in ms, reservation, limit.
_RESERVE = (
    _STANDING
    + """
if redis.call('EXISTS', KEYS[3]) == 1 then return {'spent', 0} end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if not redis.call('ZSCORE', KEYS[2], ARGV[2]) and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[3]) then
  return {'full', 0}
end
redis.call('ZADD', KEYS[2], now + ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {'held', 0}
"""
)

# KEYS: leases, spent. ARGV: lease in ms, reservation. One that overtakes its reservation forbids it.
_RELEASE = """
if redis.call('ZREM', KEYS[1], ARGV[2]) == 0 then
  redis.call('SET', KEYS[2], 1, 'PX', ARGV[1])
end
"""

# KEYS: incarnation.
_START = (
    _NOW
    + """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'server', server, 'opens_ms', 0)
return 1
"""
)


@dataclass(frozen=True, slots=True)
class QuotaServer:
    """The Redis behind a quota. ``evicts``: when its memory is full it drops keys, leases among them."""

    version: str
    evicts: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one reservation lies in Redis; no two of them can be written alike."""

    leases: str
    reservation: str

    @classmethod
    def of(cls, key: ReservationKey, tenant: str, model: str) -> "_Place":
        return cls(
            f"{_PREFIX}:leases:{quote(tenant, safe='')}:{quote(model, safe='')}",
            f"{quote(key.request_id, safe='')}:{key.attempt}:{quote(key.endpoint, safe='')}",
        )

    @property
    def spent(self) -> str:
        return f"{_PREFIX}:spent:{self.reservation}"


class _Returns:
    """Gives places back behind their holders' backs, again and again until Redis has heard it.

    A place that can't be given back for a whole lease time has come back by itself.
    """

    def __init__(self, give_back: Callable[[_Place], Awaitable[object]], lease_s: float) -> None:
        self._give_back = give_back
        self._lease_s = lease_s
        self._pending: dict[_Place, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, place: _Place) -> None:
        if self._closed:
            return
        self._pending[place] = time.monotonic() + self._lease_s
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def aclose(self, within_s: float) -> None:
        self._closed = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=within_s)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._pending:
            batch = list(islice(self._pending.items(), _AT_ONCE))
            heard = await asyncio.gather(*(self._try(place, until) for place, until in batch))
            for (place, until), done in zip(batch, heard, strict=True):
                del self._pending[place]
                if not done:  # behind the others: one that Redis refuses holds up none of them
                    self._pending[place] = until
            if not all(heard):
                await asyncio.sleep(_AGAIN_S)

    async def _try(self, place: _Place, until: float) -> bool:
        """True when there is nothing left to do for this place."""
        if time.monotonic() >= until:
            return True
        try:
            await self._give_back(place)
        except QuotaUnavailable:
            return False
        return True


class _RedisLease:
    def __init__(self, returns: _Returns, place: _Place) -> None:
        self._returns: _Returns | None = returns
        self._place = place

    def settle(self, tokens: int | None) -> None:
        """Gives the place back: tokens aren't counted yet."""
        returns, self._returns = self._returns, None
        if returns is not None:
            returns.add(self._place)

    def release(self) -> None:
        self.settle(None)


class RedisQuota:
    """Quota over all processes that share a Redis. Fails closed: no answer, no call.

    ``lease_s`` must be longer than the longest call, its closing included. Then a lease outlives its
    call, nothing has to be renewed, and no call can run whose lease Redis has given to somebody else;
    the price is that the places of a killed process come back only after ``lease_s``. ``cap_ms`` is
    the longest a step keeps its caller. Redis must not evict keys (``maxmemory-policy noeviction``).

    A Redis that never saw a gateway looks like one that forgot everything, so its first ``lease_s``
    are closed; ``start_incarnation`` spares a new installation the wait.
    """

    def __init__(self, url: str, limit_per_tenant: int, lease_s: float, cap_ms: int) -> None:
        """Raises ConfigurationError for a URL that means nothing."""
        self._redis = open_redis(url, cap_ms)
        self._limit = limit_per_tenant
        self._lease_ms = round(lease_s * 1000)
        self._cap_s = cap_ms / 1000
        self._look = self._redis.register_script(_LOOK)
        self._reserve = self._redis.register_script(_RESERVE)
        self._release = self._redis.register_script(_RELEASE)
        self._start = self._redis.register_script(_START)
        self._steps: set[asyncio.Task[Any]] = set()
        self._returns = _Returns(self._give_back, lease_s)

    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
        """As the port says; raises QuotaUnavailable within the cap when Redis doesn't answer or is closed."""
        place = _Place.of(key, tenant, model)
        lease = _RedisLease(self._returns, place)
        arguments = self._lease_ms, place.reservation, self._limit
        try:
            word, wait_ms = await self._within_cap(
                self._asked(self._reserve, (_INCARNATION, place.leases, place.spent), arguments)
            )
        except BaseException:
            lease.release()  # nobody knows whether it was taken
            raise
        _check_open(word, wait_ms)
        if word == "full":
            raise QuotaExceeded("too many running answers", retry_after_ms=1000)
        if word == "spent":
            raise QuotaUnavailable("this reservation has been given back already")
        return lease

    async def ping(self) -> None:
        """Redis answers and is open, so that calls may start. Raises QuotaUnavailable."""
        word, wait_ms = await self._within_cap(self._asked(self._look, (_INCARNATION,), (self._lease_ms,)))
        _check_open(word, wait_ms)

    async def server(self) -> QuotaServer:
        """Which Redis it is, open or not; changes nothing. Raises QuotaUnavailable."""
        found = await self._within_cap(self._server())
        return QuotaServer(found["redis_version"], found["maxmemory_policy"] != "noeviction")

    async def _server(self) -> dict[str, Any]:
        with redis_errors():
            return {**await self._redis.info("server"), **await self._redis.info("memory")}

    async def start_incarnation(self) -> bool:
        """Opens a Redis without an incarnation at once; False when it has one, which then stays as it is.

        Only for a new installation: no gateway may be running a call. Raises QuotaUnavailable.
        """
        return bool(await self._within_cap(self._asked(self._start, (_INCARNATION,), ())))

    async def aclose(self) -> None:
        """Gives back what was released and closes the connections, within about a second each."""
        await self._returns.aclose(_CLOSE_S)
        if self._steps:
            await asyncio.wait(self._steps, timeout=_CLOSE_S)
        with redis_errors():
            await self._redis.aclose()

    async def _give_back(self, place: _Place) -> None:
        await self._asked(self._release, (place.leases, place.spent), (self._lease_ms, place.reservation))

    async def _asked(
        self, script: Callable[..., Awaitable[Any]], keys: Sequence[str], arguments: Sequence[str | int]
    ) -> Any:
        with redis_errors():
            return await script(keys=keys, args=arguments)

    async def _within_cap(self, step: Coroutine[Any, Any, T]) -> T:
        """A step in a task of its own: a cancel inside redis-py may lose a connection of its pool."""
        task = asyncio.create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._step_ended)
        await asyncio.wait({task}, timeout=self._cap_s)
        if not task.done():
            raise QuotaUnavailable("the shared quota didn't answer in time", retry_after_ms=1000)
        return task.result()

    def _step_ended(self, task: asyncio.Task[Any]) -> None:
        self._steps.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have gone


def _check_open(word: str, wait_ms: int) -> None:
    if word == "closed":
        raise QuotaUnavailable("running answers are not known yet", retry_after_ms=wait_ms)
