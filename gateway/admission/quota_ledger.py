"""A ledger: what is running and was used of each budget, as far as one process knows."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.admission.quota import Budget, Kind
from gateway.admission.quota_refusal import CALL_WAIT_MS, refusal
from gateway.admission.quota_window import SlidingWindow

_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One running call. ``slots``: where its tokens were booked, budget by budget; none = not at all."""

    budgets: tuple[Budget, ...]
    tokens: int
    slots: tuple[int, ...] = ()


class _Account:
    """Of one tenant or model."""

    def __init__(self, window_s: float) -> None:
        self.running = 0
        self.requests = SlidingWindow(window_s)
        self.tokens = SlidingWindow(window_s)

    def is_idle(self, now: float) -> bool:
        return not (self.running or self.requests.used(now) or self.tokens.used(now))


class Ledger:
    """Accounts by budget; those that nobody has used for a window are forgotten. No step waits."""

    def __init__(self, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._accounts: OrderedDict[_Name, _Account] = OrderedDict()

    def check(self, budgets: Sequence[Budget], tokens: int) -> None:
        """Raises QuotaExceeded, and changes nothing, when one of them has no room for one more call."""
        for budget in budgets:
            self._check_calls(budget)
            self._check_rate(budget, "requests", 1)
            self._check_rate(budget, "tokens", tokens)

    def begin(self, budgets: tuple[Budget, ...], tokens: int) -> Entry:
        """One more call runs, and is booked."""
        entry = self.run(budgets)
        now = self._clock()
        slots = []
        for budget in budgets:
            account = self._account(budget)
            account.requests.add(1, now)
            slots.append(account.tokens.add(tokens, now))
        return Entry(entry.budgets, tokens, tuple(slots))

    def run(self, budgets: tuple[Budget, ...]) -> Entry:
        """One more call runs, whose rates are booked elsewhere."""
        for budget in budgets:
            self._account(budget).running += 1
        return Entry(budgets, 0)

    def end(self, entry: Entry, used: int | None) -> None:
        """It runs no longer. ``used``: tokens, or None when its reservation stands. Once an entry."""
        now = self._clock()
        for budget in entry.budgets:
            self._account(budget).running -= 1
        if used is not None:
            for budget, slot in zip(entry.budgets, entry.slots, strict=False):
                self._account(budget).tokens.correct(slot, used - entry.tokens, now)
        self._forget_idle(now)

    def running(self, budget: Budget) -> int:
        account = self._accounts.get((budget.scope, budget.name))
        return 0 if account is None else account.running

    def _check_calls(self, budget: Budget) -> None:
        limit = budget.limits.concurrency
        if limit is not None and self.running(budget) >= limit:
            raise refusal(
                budget, "concurrency", asked=1, remaining=0, wait_ms=CALL_WAIT_MS, window_s=self._window_s
            )

    def _check_rate(self, budget: Budget, kind: Kind, amount: int) -> None:
        limit = budget.limit(kind)
        account = self._accounts.get((budget.scope, budget.name)) or _Account(self._window_s)
        window = account.requests if kind == "requests" else account.tokens
        now = self._clock()
        if limit is None or (room := limit - window.used(now)) >= amount:
            return
        wait_ms = round(window.wait_s(amount, limit, now) * 1000)
        raise refusal(budget, kind, asked=amount, remaining=room, wait_ms=wait_ms, window_s=self._window_s)

    def _account(self, budget: Budget) -> _Account:
        """The account, now the one used last."""
        name = (budget.scope, budget.name)
        account = self._accounts.pop(name, None) or _Account(self._window_s)
        self._accounts[name] = account
        return account

    def _forget_idle(self, now: float) -> None:
        while self._accounts:
            name, account = next(iter(self._accounts.items()))
            if not account.is_idle(now):
                return
            del self._accounts[name]

    def __len__(self) -> int:
        return len(self._accounts)
