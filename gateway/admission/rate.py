"""Request rates: how often one caller may ask, counted in this process."""

import math
from collections import OrderedDict

from aiolimiter import AsyncLimiter

from gateway.access.principal import Principal
from gateway.errors import RateLimited, SpentBudget

_WINDOW_S = 60
_MAX_CALLERS = 10_000


class RequestRate:
    """A leaky bucket for each (tenant, subject); the least recent callers are forgotten first."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._limiters: OrderedDict[tuple[str, str], AsyncLimiter] = OrderedDict()

    async def admit(self, principal: Principal) -> None:
        """Counts one request. Raises RateLimited when the bucket is full; never waits."""
        key = (principal.tenant, principal.subject)
        limiter = self._limiters.pop(key, None) or AsyncLimiter(self._per_minute, _WINDOW_S)
        self._limiters[key] = limiter
        if len(self._limiters) > _MAX_CALLERS:
            self._limiters.popitem(last=False)
        if not limiter.has_capacity():
            raise self._refusal()
        await limiter.acquire()

    def _refusal(self) -> RateLimited:
        """A full bucket has room for one more when one drop has leaked out of it."""
        drop_s = _WINDOW_S / self._per_minute
        return RateLimited(
            retry_after_ms=math.ceil(drop_s * 1000),
            budget=SpentBudget(
                "requests", self._per_minute, _WINDOW_S, remaining=0, reset_s=math.ceil(drop_s)
            ),
        )
