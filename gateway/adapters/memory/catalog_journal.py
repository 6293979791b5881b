"""The journal's outbox of the in-memory catalog."""

from collections.abc import Sequence

from gateway.adapters.memory.catalog_rows import CatalogRows
from gateway.ingest.journal import JournalEntry


class JournalRows(CatalogRows):
    """JournalOutbox over the list that every act adds to."""

    async def journal_incarnation(self) -> str:
        return self._incarnation

    async def claim_journal(self, lease_s: float, limit: int) -> list[JournalEntry]:
        now = self._clock()
        free = [entry for entry in self._journal if self._journal_claims.get(entry.seq, 0.0) <= now][:limit]
        self._journal_claims |= {entry.seq: now + lease_s for entry in free}
        return free

    async def journaled(self, entries: Sequence[JournalEntry]) -> None:
        self._journal = [entry for entry in self._journal if entry not in entries]

    async def journal_lag_s(self) -> float:
        return max(0.0, self._clock() - self._journal[0].at) if self._journal else 0.0
