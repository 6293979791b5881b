"""Turns of conversations in the in-memory catalog."""

from collections.abc import Sequence

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory.catalog_traces import TraceRows
from gateway.answer.conversation import ConversationKey, Turn
from gateway.ingest.task import TaskClaim

_MOST_PURGED = 500


class TurnRows(TraceRows):
    """TurnStore, and what of turns a clean-up takes."""

    async def turns(self, key: ConversationKey, since: float, limit: int) -> list[Turn]:
        return [turn for turn in reversed(self._turns) if turn.key == key and turn.at >= since][:limit]

    async def add_turn(self, turn: Turn, most: int) -> None:
        if any(map(self._is_deleted, turn.documents)):
            return
        self._turns.append(turn)
        mine = [one for one in self._turns if one.key == turn.key]
        for old in mine[: max(0, len(mine) - most)]:
            self._turns.remove(old)

    async def erase_turns(self, tenant: str, subject: str) -> int:
        return self._drop([t for t in self._turns if (t.key.tenant, t.key.subject) == (tenant, subject)])

    async def purge_turns(self, older_s: float) -> int:
        before = self._clock() - older_s
        return self._drop([turn for turn in self._turns if turn.at < before][:_MOST_PURGED])

    async def erase_quotes(self, claim: TaskClaim, versions: Sequence[int]) -> int:
        erased = await super().erase_quotes(claim, versions)
        gone = {DocumentRef(str(claim.target), version) for version in versions}
        return erased + self._drop([turn for turn in self._turns if not gone.isdisjoint(turn.documents)])

    def _drop(self, turns: list[Turn]) -> int:
        for turn in turns:
            self._turns.remove(turn)
        return len(turns)
