"""Places: the names in Redis of everything that the quota keeps there."""

from dataclasses import dataclass
from urllib.parse import quote

from gateway.admission.quota import Budget, ReservationKey

#: one hash tag: the incarnation must live, and be lost, with the leases it speaks for
_PREFIX = "qa-gateway:{quota}"

INCARNATION = f"{_PREFIX}:incarnation"
#: name -> what is known of that process; and, by time, when it counts as silent, until when its part of
#: the rates is withheld, when it is forgotten
REGISTRY = f"{_PREFIX}:registry"
SILENT = f"{_PREFIX}:silent"
ALONE = f"{_PREFIX}:alone"
FORGET = f"{_PREFIX}:forget"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one reservation lies in Redis; no two of them can be written alike."""

    member: str
    tenant: Budget
    model: Budget

    @classmethod
    def of(cls, key: ReservationKey, tenant: Budget, model: Budget) -> "Place":
        names = (tenant.name, model.name, key.request_id, str(key.attempt), key.endpoint)
        return cls(":".join(quote(name, safe="") for name in names), tenant, model)

    @property
    def budgets(self) -> tuple[Budget, Budget]:
        return self.tenant, self.model

    @property
    def record(self) -> str:
        """What became of the reservation."""
        return f"{_PREFIX}:record:{self.member}"

    @property
    def leases(self) -> tuple[str, str]:
        """Running calls by the time their leases run out, of either budget."""
        return _of(self.tenant, "leases"), _of(self.model, "leases")

    @property
    def keys(self) -> tuple[str, ...]:
        """record, tenant's leases, tenant's use, model's leases, model's use."""
        leases = self.leases
        return self.record, leases[0], _of(self.tenant, "use"), leases[1], _of(self.model, "use")


def _of(budget: Budget, what: str) -> str:
    return f"{_PREFIX}:{what}:{budget.scope}:{quote(budget.name, safe='')}"
