"""The shared quota's port: what one tenant, and one model, may use over all processes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

Scope = Literal["tenant", "model"]
Kind = Literal["concurrency", "requests", "tokens"]


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """The global limits of one tenant or of one model; None = none. Rates count any 60 seconds."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    @property
    def has_rates(self) -> bool:
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def part(self, count: int) -> "QuotaLimits":
        """What one of ``count`` equal parts may use on its own, rounded down."""
        return QuotaLimits(
            *(
                None if limit is None else limit // count
                for limit in (self.concurrency, self.requests_per_minute, self.tokens_per_minute)
            )
        )


UNLIMITED = QuotaLimits()


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of the tenant or model called ``name``."""

    scope: Scope
    name: str
    limits: QuotaLimits

    def limit(self, kind: Kind) -> int | None:
        limits = self.limits
        return {
            "concurrency": limits.concurrency,
            "requests": limits.requests_per_minute,
            "tokens": limits.tokens_per_minute,
        }[kind]

    def part(self, count: int) -> "Budget":
        return Budget(self.scope, self.name, self.limits.part(count))


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
