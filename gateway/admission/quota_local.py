"""LocalQuota: the quota of a process that is alone; the twin of the one in Redis."""

import time
from collections import Counter
from collections.abc import Callable

from gateway.admission.quota import UNLIMITED, Budget, QuotaLease, QuotaLimits, ReservationKey
from gateway.admission.quota_ledger import Entry, Ledger

_Place = tuple[ReservationKey, str, str]


class _LocalLease:
    def __init__(self, quota: "LocalQuota", place: _Place, entry: Entry) -> None:
        self._quota = quota
        self._place = place
        self._entry = entry

    def settle(self, tokens: int | None) -> None:
        self._quota.take_back(self._place, self._entry, tokens)

    def release(self) -> None:
        self.settle(None)


class LocalQuota:
    """Counts in memory: ``tenant_limits`` hold for each tenant over all models, ``model_limits`` for each
    model over all tenants. ``window_s`` and ``clock`` are for tests: a minute is 60 seconds.
    """

    def __init__(
        self,
        tenant_limits: QuotaLimits,
        model_limits: QuotaLimits = UNLIMITED,
        *,
        window_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tenant_limits = tenant_limits
        self._model_limits = model_limits
        self._ledger = Ledger(window_s, clock)
        self._running: dict[_Place, Entry] = {}

    @property
    def in_use(self) -> Counter[str]:
        """Running calls by tenant, over all models."""
        return Counter(tenant for _, tenant, _ in self._running)

    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
        """As the port says. A place is never lost here."""
        place = (key, tenant, model)
        entry = self._running.get(place)
        if entry is None:
            budgets = (
                Budget("tenant", tenant, self._tenant_limits),
                Budget("model", model, self._model_limits),
            )
            self._ledger.check(budgets, tokens)
            entry = self._running[place] = self._ledger.begin(budgets, tokens)
        return _LocalLease(self, place, entry)

    def take_back(self, place: _Place, entry: Entry, used: int | None) -> None:
        """Does nothing when it was taken back before, also when the same key has reserved again since."""
        if self._running.get(place) is entry:
            del self._running[place]
            self._ledger.end(entry, used)
