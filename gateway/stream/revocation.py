"""Revocations: the authoritative record, and what the feed asks of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.access.act import Act
from gateway.access.authorizer import DocumentRef


class RevocationKind(StrEnum):
    USER = "user"
    GROUP = "group"
    DOCUMENT = "document"
    KNOWLEDGE_BASE = "knowledge_base"


@dataclass(frozen=True, slots=True)
class RevocationRecord:
    """Times are seconds since the epoch; ``lifted_at`` is None while it is in force. ``task_id`` names the
    clean-up that follows the revocation of a document or a knowledge base.
    """

    revocation_id: str
    tenant: str
    kind: RevocationKind
    subject: str
    reason: str
    revoked_by: str
    revocation_epoch: int
    created_at: float
    lifted_at: float | None
    task_id: str | None = None


@dataclass(frozen=True, slots=True)
class RevocationNews:
    """Revocations in force, newer than an epoch, and when document versions were deleted. ``now`` is the
    moment of the read on the clock of all these times, so that their age can be told without another clock.
    """

    now: float
    records: tuple[RevocationRecord, ...]
    deletions: Mapping[DocumentRef, float] = field(default_factory=dict)


class RevocationCatalog(Protocol):
    """Raises CatalogUnavailable when it can't answer."""

    async def revoke(
        self,
        tenant: str,
        kind: RevocationKind,
        subject: str,
        reason: str,
        revoked_by: str,
        *,
        act: Act | None = None,
    ) -> RevocationRecord:
        """Inserts it and bumps the tenant's epoch, durably, in one transaction. Revoking twice
        returns the record in force. ``subject``: a user or group name, a document id, a knowledge
        base name. Raises NotFound for a document or knowledge base the tenant doesn't have.
        """
        ...

    async def revocations_since(
        self, tenant: str, epoch: int, documents: Collection[DocumentRef] = ()
    ) -> RevocationNews:
        """Those in force whose ``revocation_epoch`` is above ``epoch``, oldest first; and of these
        ``documents`` the ones that were deleted, also when their document was imported again since.
        """
        ...

    async def list_revocations(
        self, tenant: str, *, limit: int | None = None, before: str | None = None
    ) -> list[RevocationRecord]:
        """Newest first, lifted ones too: all, or at most ``limit`` that are older than the one with the id
        ``before``. Raises InvalidField when ``before`` is no revocation of the tenant's.
        """
        ...

    async def lift(self, tenant: str, revocation_id: str) -> RevocationRecord:
        """Ends it and bumps the epoch. Raises NotFound; lifting twice returns the record."""
        ...
