"""SqlTraces: the catalog's ports to what people searched."""

from collections.abc import Collection, Sequence

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import releases, talks, traces
from gateway.adapters.sql.catalog_part import SqlPart, forgotten
from gateway.answer.conversation import ConversationKey, Turn
from gateway.observe.tracelog import TraceRecord


class SqlTraces(SqlPart):
    """Implements TraceStore, TurnStore and ReleaseContents; their docstrings are the contract."""

    async def append_traces(self, records: Sequence[TraceRecord]) -> None:
        await self._write(lambda c, now: traces.append(c, records))

    async def trace(
        self, tenant: str, *, request_id: str | None = None, trace_id: str | None = None
    ) -> TraceRecord | None:
        return await self._read(lambda c: traces.found(c, tenant, request_id, trace_id))

    async def erase_traces(self, tenant: str, subject: str) -> int:
        return await forgotten(lambda: self._write(lambda c, now: traces.erase(c, tenant, subject)))

    async def purge_traces(self, older_s: float) -> int:
        return await self._write(lambda c, now: traces.purge(c, now - older_s))

    async def turns(self, key: ConversationKey, since: float, limit: int) -> list[Turn]:
        return await self._read(lambda c: talks.listed(c, key, since, limit))

    async def add_turn(self, turn: Turn, most: int) -> None:
        await self._write(lambda c, now: talks.add(c, turn, most))

    async def erase_turns(self, tenant: str, subject: str) -> int:
        return await forgotten(lambda: self._write(lambda c, now: talks.erase(c, tenant, subject)))

    async def purge_turns(self, older_s: float) -> int:
        return await self._write(lambda c, now: talks.purge(c, now - older_s))

    async def documents_in(
        self, tenant: str, release_id: str, classes: Collection[int], limit: int
    ) -> list[DocumentRef]:
        return await self._look(lambda c: releases.documents_in(c, tenant, release_id, classes, limit))
