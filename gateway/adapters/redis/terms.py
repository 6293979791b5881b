"""The terms of the shared quota: how long a lease, a call and a silence last, and what follows from them."""

from dataclasses import dataclass

from gateway.admission.quota import UNLIMITED, Budget, QuotaLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTerms:
    """All processes must have the same. ``total_cap_s`` is the longest a call may run, its closing included.

    ``window_s`` is a minute, except in tests; ``forget_s`` is how long a silent process keeps its place.
    """

    tenant: QuotaLimits
    model: QuotaLimits = UNLIMITED
    lease_s: float
    total_cap_s: float
    window_s: float = 60.0
    forget_s: float = 600.0

    def budgets(self, tenant: str, model: str) -> tuple[Budget, Budget]:
        return Budget("tenant", tenant, self.tenant), Budget("model", model, self.model)

    @property
    def quiet_s(self) -> float:
        """After this long without a word, nothing from before counts any more: the lease has run out, then
        the calls that others began in its place have ended; rates of before have left their window.
        """
        return self.lease_s + self.settled_s

    @property
    def settled_s(self) -> float:
        """So long after it began a call is over, and what it counts for in rates has left the window."""
        has_rates = self.tenant.has_rates or self.model.has_rates
        return max(self.total_cap_s, self.slots_s if has_rates else 0.0)

    @property
    def slots_s(self) -> float:
        """The window and the slot that it ends in."""
        return self.window_s * 61 / 60

    @property
    def beat_s(self) -> float:
        """Five in a lease, at most one a second."""
        return min(1.0, self.lease_s / 5)

    @property
    def margin_s(self) -> float:
        """A call has this long to end before its lease runs out."""
        return min(1.0, self.lease_s / 5)

    @property
    def record_s(self) -> float:
        """What became of a reservation is known for this long."""
        return self.total_cap_s + self.lease_s + self.slots_s

    @property
    def forgotten_s(self) -> float:
        """``forget_s``, or longer where the time alone would else be nothing."""
        return max(self.forget_s, 2 * (self.quiet_s + self.settled_s))
