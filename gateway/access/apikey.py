"""API keys: what the catalog keeps of one, and the port that keeps them. The secret itself is never kept."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. ``digest`` is the hex HMAC-SHA256 of its secret; times are seconds since the epoch.

    Its holder is the subject ``apikey:<name>``, so that no key can pose as a person.
    """

    key_id: str
    tenant: str
    name: str
    groups: frozenset[str]
    scopes: frozenset[str]
    digest: str
    created_by: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None


class ApiKeyStore(Protocol):
    """Keeps keys. Every method raises CatalogUnavailable when it can't answer."""

    async def add_api_key(self, key: ApiKey) -> None:
        """``key_id`` is new; durable before it returns."""
        ...

    async def api_key(self, key_id: str) -> ApiKey | None:
        """Read fresh for each request: a revoked key is dead at once, in every process."""
        ...

    async def api_keys(self, tenant: str) -> list[ApiKey]:
        """Newest first, revoked and expired ones too."""
        ...

    async def revoke_api_key(self, tenant: str, key_id: str) -> ApiKey:
        """Idempotent: the first moment stays. Raises NotFound, also for another tenant's key."""
        ...
