"""The shared quota: what one tenant, and one model, may use over all processes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gateway.errors import QuotaExceeded


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """The global limits of one tenant or of one model; None = none. Rates count any 60 seconds."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class ReservationKey:
    """Names one model call; a step repeated under the same key counts once."""

    request_id: str
    attempt: int
    endpoint: str


class QuotaLease(Protocol):
    """What was reserved for one call: a place, and tokens."""

    def settle(self, tokens: int | None) -> None:
        """The call is over: gives the place back and books what was used. Idempotent, the first word counts.

        0 is "nothing was used", None "nobody knows": then the whole reservation stands. Never waits: a
        store elsewhere hears of it soon after, or the lease runs out there.
        """
        ...

    def release(self) -> None:
        """``settle(None)``, for whoever only knows that it is over."""
        ...


class Quota(Protocol):
    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
        """One place and ``tokens``, the most the call may use, of the tenant's and of the model's budgets.

        Raises QuotaExceeded, and QuotaUnavailable when nobody can say. Safe under cancellation: what a
        cancelled caller may have reserved is given back. ``on_lost`` is called, at most once, when the
        place can't be kept any longer: the call must end now.
        """
        ...


class _LocalLease:
    def __init__(self, quota: "LocalQuota", place: tuple[str, str], key: ReservationKey) -> None:
        self._quota: LocalQuota | None = quota
        self._place = place
        self._key = key

    def settle(self, tokens: int | None) -> None:
        quota, self._quota = self._quota, None
        if quota is not None:
            quota.take_back(self._place, self._key)

    def release(self) -> None:
        self.settle(None)


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

    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
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
