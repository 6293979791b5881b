"""The catalog's word on who may see a document, who approved it, and which rows have to follow."""

from gateway.adapters.sql import approvals, moves, rights
from gateway.adapters.sql.catalog_part import SqlPart
from gateway.ingest.governance import AclChange, Approval, ChangedAcl, Verdict
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.task import TaskClaim


class SqlGovernance(SqlPart):
    """Implements Governance and MoveStore; their docstrings are the contract."""

    async def set_acl(self, change: AclChange) -> ChangedAcl:
        # durable: a power cut must not bring back a wider ACL
        return await self._database.write(lambda c, now: rights.set_acl(c, now, change), durable=True)

    async def judge(self, verdict: Verdict) -> Approval:
        return await self._database.write(lambda c, now: approvals.judge(c, now, verdict), durable=True)

    async def begin_moves(self, claim: TaskClaim) -> tuple[ReleasePlan, ...]:
        return await self._database.write(lambda c, now: moves.begin(c, claim))

    async def finish_move(self, claim: TaskClaim, plan: ReleasePlan, terms: ClassTerms) -> None:
        await self._database.write(lambda c, now: moves.finish(c, claim, plan, terms))

    async def distrust_moves(self, claim: TaskClaim) -> None:
        await self._database.write(lambda c, now: moves.distrust(c, now, claim))
