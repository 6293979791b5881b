"""Places: how many may wait at once in this process, and how many of them for one tenant.

Whoever makes others work by asking could ask for ever; a tenant must not keep the rest from being heard.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.errors import Overloaded


class Places:
    """``name`` is told to whoever finds none, with ``retry_after_ms``."""

    def __init__(self, name: str, *, most: int, most_of_tenant: int, retry_after_ms: int) -> None:
        self._name = name
        self._most = most
        self._most_of_tenant = most_of_tenant
        self._retry_after_ms = retry_after_ms
        self._taken: Counter[str] = Counter()

    @contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """One, while the block runs. Raises Overloaded at once when there is none."""
        if self._taken.total() >= self._most or self._taken[tenant] >= self._most_of_tenant:
            raise Overloaded(self._name, retry_after_ms=self._retry_after_ms)
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]
