"""Request rates: how often one caller may ask, counted in this process."""

from collections import OrderedDict

from aiolimiter import AsyncLimiter

from gateway.access.principal import Principal
from gateway.errors import RateLimited

_MAX_CALLERS = 10_000


class RequestRate:
    """A leaky bucket for each (tenant, subject); the least recent callers are forgotten first."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._limiters: OrderedDict[tuple[str, str], AsyncLimiter] = OrderedDict()

    async def admit(self, principal: Principal) -> None:
        """Counts one request. Raises RateLimited when the bucket is full; never waits."""
        key = (principal.tenant, principal.subject)
        limiter = self._limiters.pop(key, None) or AsyncLimiter(self._per_minute, 60)
        self._limiters[key] = limiter
        if len(self._limiters) > _MAX_CALLERS:
            self._limiters.popitem(last=False)
        if not limiter.has_capacity():
            raise RateLimited(retry_after_ms=max(1, round(60_000 / self._per_minute)))
        await limiter.acquire()
