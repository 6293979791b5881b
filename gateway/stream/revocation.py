"""Revocations: the authoritative record, and (later) the feed that ends running streams."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class RevocationKind(StrEnum):
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    KNOWLEDGE_BASE = "knowledge_base"


@dataclass(frozen=True, slots=True)
class RevocationRecord:
    """Times are seconds since the epoch; ``lifted_at`` is None while it is in force."""

    revocation_id: str
    tenant: str
    kind: RevocationKind
    subject: str
    reason: str
    revoked_by: str
    revocation_epoch: int
    created_at: float
    lifted_at: float | None


class RevocationCatalog(Protocol):
    """Raises CatalogUnavailable when it can't answer."""

    async def revoke(
        self, tenant: str, kind: RevocationKind, subject: str, reason: str, revoked_by: str
    ) -> RevocationRecord:
        """Inserts it and bumps the tenant's epoch, durably, in one transaction. Revoking twice
        returns the record in force. ``subject``: a user or group name, a document id, a knowledge
        base name. Raises NotFound for a document or knowledge base the tenant doesn't have.
        """
        ...

    async def list_revocations(self, tenant: str) -> list[RevocationRecord]: ...

    async def lift(self, tenant: str, revocation_id: str) -> RevocationRecord:
        """Ends it and bumps the epoch. Raises NotFound; lifting twice returns the record."""
        ...
