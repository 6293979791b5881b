"""The running calls of one process, and which of them must end because their leases can't be relied on."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gateway.adapters.redis.places import Place
from gateway.admission.quota_ledger import Entry

#: of a call that was admitted without Redis
NO_LEASE = float("-inf")


@dataclass(slots=True, eq=False)
class Call:
    """One running call. ``is_known``: Redis may have heard of it."""

    place: Place
    entry: Entry
    on_lost: Callable[[], None]
    leased_until: float
    is_known: bool
    is_lost: bool = False


class RunningCalls:
    """In the order they began."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def __iter__(self) -> Iterator[Call]:
        return iter(list(self._calls.values()))

    def get(self, place: Place) -> Call | None:
        return self._calls.get(place.member)

    def add(self, call: Call) -> None:
        self._calls[call.place.member] = call

    def remove(self, call: Call) -> bool:
        """False when it was removed before."""
        if self._calls.get(call.place.member) is not call:
            return False
        del self._calls[call.place.member]
        return True

    def next_loss(self, now: float) -> float | None:
        """When the next lease can't be relied on any more."""
        return min((call.leased_until for call in self if call.leased_until > now), default=None)

    def end_lost(self, now: float, part: int) -> None:
        """Of those without a lease the newest end that are beyond this process' part (0 = none)."""
        kept: Counter[tuple[str, str]] = Counter()
        for call in self:
            if call.is_lost or call.leased_until > now:
                continue
            names = [(budget.scope, budget.name) for budget in call.place.budgets]
            limits = [budget.limits.concurrency for budget in call.place.budgets]
            if part and all(
                limit is None or kept[name] < limit // part for name, limit in zip(names, limits, strict=True)
            ):
                kept.update(names)
            elif any(limit is not None for limit in limits):
                call.is_lost = True
                call.on_lost()
