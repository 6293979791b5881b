"""SqlRemains: the catalog's ports to what nobody needs any more."""

from collections.abc import Sequence

from gateway.adapters.sql import cleanups, reclaim, references
from gateway.adapters.sql.catalog_part import SqlPart, forgotten
from gateway.ingest.references import (
    DocumentTerms,
    Holding,
    ReclaimPolicy,
    Remains,
    Sentence,
    StoredRevision,
)
from gateway.ingest.task import TaskClaim


class SqlRemains(SqlPart):
    """Implements RemainsStore, ReferenceStore and ReclaimStore; their docstrings are the contract."""

    async def remains(self, claim: TaskClaim) -> Remains | None:
        return await self._database.browse(lambda c: cleanups.remains(c, claim))

    async def forget(self, claim: TaskClaim, holding: Holding, terms: DocumentTerms | None) -> None:
        await self._database.write(lambda c, now: cleanups.forget(c, claim, holding, terms))

    async def erase_quotes(self, claim: TaskClaim, versions: Sequence[int]) -> int:
        return await forgotten(
            lambda: self._database.write(lambda c, now: cleanups.erase_quotes(c, claim, versions))
        )

    async def erase(self, claim: TaskClaim, versions: Sequence[int]) -> None:
        await self._database.write(lambda c, now: cleanups.erase(c, claim, versions))

    async def condemn(self, keys: Sequence[str], window_s: float, takeover_s: float) -> Sentence:
        # durable: after a power cut nobody may count on vectors whose file was taken away
        return await self._database.write(
            lambda c, now: references.condemn(c, now, keys, window_s, takeover_s), durable=True
        )

    async def bury(self, sentence: Sentence) -> None:
        await self._database.write(lambda c, now: references.bury(c, sentence))

    async def left_condemned(self, takeover_s: float) -> list[str]:
        return await self._database.write(lambda c, now: references.left_condemned(c, now, takeover_s))

    async def schedule_reclaims(self, policy: ReclaimPolicy, deadline_s: float) -> int:
        return await reclaim.schedule(self._database, policy, deadline_s)

    async def begin_reclaim(self, claim: TaskClaim, policy: ReclaimPolicy) -> list[StoredRevision]:
        return await reclaim.begin(self._database, claim, policy)

    async def swept(self, claim: TaskClaim, revision: StoredRevision) -> None:
        await self._database.write(lambda c, now: reclaim.swept(c, now, claim, revision))

    async def claim_sweep(self, every_s: float) -> bool:
        return await self._database.write(lambda c, now: reclaim.claim_sweep(c, now, every_s))
