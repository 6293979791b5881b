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

    def release(self) -> None:
        """Never waits: a store elsewhere hears of it soon after, or the lease runs out there."""
        ...


class Quota(Protocol):
    async def reserve(self, key: ReservationKey, tenant: str, model: str, tokens: int) -> QuotaLease:
        """Raises QuotaExceeded, and QuotaUnavailable when nobody can say; ``tokens`` is the most it may use.

        Safe under cancellation: what a cancelled caller may have reserved is given back.
        """
        ...


class _LocalLease:
    def __init__(self, quota: "LocalQuota", place: tuple[str, str], key: ReservationKey) -> None:
        self._quota: LocalQuota | None = quota
        self._place = place
        self._key = key

    async def settle(self, tokens: int | None) -> None:
        self.release()

    def release(self) -> None:
        quota, self._quota = self._quota, None
        if quota is not None:
            quota.take_back(self._place, self._key)


class LocalQuota:
    """One process's quota: running calls a tenant and model."""

    def __init__(self, calls_per_tenant: int) -> None:
        self._limit = calls_per_tenant
        self._running: dict[tuple[str, str], set[ReservationKey]] = {}

    @property
    def in_use(self) -> Counter[str]:
        """Running calls by tenant, over all models."""
        counts: Counter[str] = Counter()
        for (tenant, _), running in self._running.items():
            counts[tenant] += len(running)
        return counts

    async def reserve(self, key: ReservationKey, tenant: str, model: str, tokens: int) -> QuotaLease:
        place = tenant, model
        running = self._running.get(place, set())
        if key not in running and len(running) >= self._limit:
            raise QuotaExceeded("too many running answers", retry_after_ms=1000)
        self._running[place] = running | {key}
        return _LocalLease(self, place, key)

    def take_back(self, place: tuple[str, str], key: ReservationKey) -> None:
        left = self._running.pop(place, set()) - {key}
        if left:  # a tenant that asked once isn't remembered for ever
            self._running[place] = left
