"""What a caller is told when a budget has no room for his call."""

from gateway.admission.quota import Budget, Kind
from gateway.errors import QuotaExceeded, SpentBudget

#: nobody knows when a running call will end
CALL_WAIT_MS = 1000

_SPENT: dict[Kind, str] = {
    "concurrency": "too many running answers",
    "requests": "too many answers in a minute",
    "tokens": "too many tokens in a minute",
}


def refusal(
    budget: Budget, kind: Kind, *, asked: int, remaining: int, wait_ms: int, window_s: float
) -> QuotaExceeded:
    """The error for a call that needs ``asked`` where only ``remaining`` are left for ``wait_ms`` more.

    A call that asks for more than the whole limit is told so, and no time: it can never start.
    """
    limit = budget.limit(kind) or 0
    spent = SpentBudget(
        policy=f"{budget.scope}-{kind}",
        limit=limit,
        window_s=0 if kind == "concurrency" else max(1, round(window_s)),
        remaining=max(0, remaining),
        reset_s=max(1, -(-wait_ms // 1000)),
    )
    if asked > limit:
        return QuotaExceeded(
            f"this call needs {asked} {kind} of {limit} that its {budget.scope} has: it can't ever start",
            budget=spent,
        )
    return QuotaExceeded(
        f"{_SPENT[kind]} of this {budget.scope}", retry_after_ms=max(1, wait_ms), budget=spent
    )
