"""Shares: how many of this process' places one tenant may hold, so that others find some left."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import QuotaExceeded, SpentBudget

#: nobody knows when one of the tenant's own places becomes free
_RETRY_S = 1


class TenantShares:
    """``size`` places a tenant; ``name`` is what they are places of."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, tenant: str) -> Iterator[None]:
        """Holds one of the tenant's places. Raises QuotaExceeded when it has none left; never waits."""
        if self._taken[tenant] >= self._size:
            raise QuotaExceeded(
                f"this tenant holds all its {self._name}",
                retry_after_ms=_RETRY_S * 1000,
                budget=SpentBudget(self._name, self._size, window_s=0, remaining=0, reset_s=_RETRY_S),
            )
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]
