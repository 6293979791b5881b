"""The in-memory twin of the catalog: every catalog port with real semantics, for tests."""

import json
from dataclasses import replace

from gateway.adapters.memory.catalog_acts import ActRows
from gateway.adapters.memory.catalog_api_keys import ApiKeyRows
from gateway.adapters.memory.catalog_diffs import DiffRows
from gateway.adapters.memory.catalog_governance import GovernanceRows
from gateway.adapters.memory.catalog_journal import JournalRows
from gateway.adapters.memory.catalog_orders import OrderRows
from gateway.adapters.memory.catalog_remains import RemainsRows
from gateway.adapters.memory.catalog_turns import TurnRows
from gateway.adapters.memory.catalog_versions import VersionRows
from gateway.observe.audit import AuditRecord


class MemoryCatalog(
    ActRows, RemainsRows, GovernanceRows, VersionRows, DiffRows, JournalRows, OrderRows, ApiKeyRows, TurnRows
):
    """Access, tasks, versions, releases, revocations, journal, orders, API keys, audit, traces, turns and
    lexicon in dicts.

    ``MemoryCatalog(clock)``: the clock gives seconds since the epoch. Each method runs without a
    pause, so each is a transaction. Nothing is kept when the process ends.
    """

    async def ping(self) -> None:
        """The catalog is there."""

    async def append(self, record: AuditRecord) -> None:
        # What a database can't keep must not be kept here either.
        details = json.loads(json.dumps(dict(record.details)))
        self._audit.append(replace(record, details=details))

    async def entries(self, tenant: str, limit: int, action: str | None = None) -> list[AuditRecord]:
        found = [
            record
            for record in reversed(self._audit)
            if record.tenant == tenant and action in {None, record.action}
        ]
        return found[: max(0, limit)]
