"""The audit trail: who did what to which knowledge; never a question, a chunk or an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One entry. ``details`` holds ids, counts, digests and codes only; ``at`` is epoch seconds."""

    at: float
    tenant: str
    subject: str
    action: str
    request_id: str
    details: Mapping[str, object] = field(default_factory=dict)


class AuditLog(Protocol):
    """Raises CatalogUnavailable when an entry can't be kept."""

    async def append(self, record: AuditRecord) -> None: ...

    async def entries(self, tenant: str, limit: int, action: str | None = None) -> list[AuditRecord]:
        """Newest first, of this tenant only."""
        ...
