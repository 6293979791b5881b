"""The shared quota: what one tenant may use of one model, over all processes.

The port exists from the start; the in-process twin below keeps concurrency only. Production puts a
store shared by all processes behind the same port.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import QuotaExceeded


@dataclass(frozen=True, slots=True)
class ReservationKey:
    """Names one model call; a step repeated under the same key counts once."""

    request_id: str
    attempt: int
    endpoint: str


class QuotaLease(Protocol):
    """What was reserved for one call. ``settle`` once; ``release`` is idempotent."""

    async def settle(self, tokens: int | None) -> None:
        """Books what was used; None = unknown, then the reservation stands."""
        ...

    def release(self) -> None: ...


class Quota(Protocol):
    async def reserve(self, key: ReservationKey, tenant: str, model: str, tokens: int) -> QuotaLease:
        """Raises QuotaExceeded; ``tokens`` is the most the call may use."""
        ...


class _LocalLease:
    def __init__(self, quota: "LocalQuota", tenant: str) -> None:
        self._quota: LocalQuota | None = quota
        self._tenant = tenant

    async def settle(self, tokens: int | None) -> None:
        self.release()

    def release(self) -> None:
        quota, self._quota = self._quota, None
        if quota is not None:
            quota.in_use[self._tenant] -= 1
            if not quota.in_use[self._tenant]:
                del quota.in_use[self._tenant]  # a tenant that asked once isn't remembered for ever


class LocalQuota:
    """One process's quota: running calls a tenant."""

    def __init__(self, calls_per_tenant: int) -> None:
        self._limit = calls_per_tenant
        self.in_use: Counter[str] = Counter()

    async def reserve(self, key: ReservationKey, tenant: str, model: str, tokens: int) -> QuotaLease:
        if self.in_use[tenant] >= self._limit:
            raise QuotaExceeded("too many running answers", retry_after_ms=1000)
        self.in_use[tenant] += 1
        return _LocalLease(self, tenant)
