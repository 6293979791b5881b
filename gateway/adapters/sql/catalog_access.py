"""The catalog as whoever answers and operates sees it: rights, revocations, orders, keys, audit."""

from collections.abc import Collection, Mapping, Sequence

import anyio
from sqlalchemy import Connection

from gateway.access.act import Act
from gateway.access.apikey import ApiKey
from gateway.access.authorizer import DocumentRef, DocumentStanding, RevocationSet, TenantStamp
from gateway.access.classes import AclClass
from gateway.adapters.sql import (
    access,
    acts,
    api_keys,
    audit,
    classes,
    journal,
    lexicon,
    orders,
    releases,
    restoring,
    revocations,
)
from gateway.adapters.sql.catalog_part import SqlPart
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from gateway.ingest.journal import JournalEntry
from gateway.observe.audit import AuditRecord
from gateway.release.model import (
    RetrievalRelease,
)
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery
from gateway.stream.orders import Order, Reply
from gateway.stream.revocation import RevocationKind, RevocationNews, RevocationRecord

#: asked for when the feed looks on behalf of nobody; a tenant's name is never empty
_NOBODY = ""


class SqlAccess(SqlPart):
    """Implements AccessCatalog, RevocationCatalog, OrderBoard, ApiKeyStore, AuditLog, JournalOutbox,
    Lexicon.
    """

    # access

    async def tenant_stamp(self, tenant: str) -> TenantStamp:
        return restoring.confirmed(await self._ask(access.tenant_stamps, tenant))

    async def tenant_stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        return await self._look(lambda c: access.tenant_stamps(c, tuple(tenants) or (_NOBODY,)))

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        return await self._ask(classes.all_in_use, (tenant, kb_id))

    async def revocations(self, tenant: str) -> RevocationSet:
        return await self._ask(access.revocation_sets, tenant)

    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        return await self._look(lambda c: access.standings(c, tenant, kb_id, refs))

    async def active(self, tenant: str, kb_id: str) -> RetrievalRelease | None:
        return await self._ask(releases.active, (tenant, kb_id))

    async def active_spaces(self) -> frozenset[str]:
        """The ids of the embedding spaces that any active release needs."""
        return await self._look(releases.active_spaces)

    async def statistics(
        self, query: ScopedQuery, terms: Sequence[str], deadline: Deadline
    ) -> TermStatistics:
        with anyio.move_on_after(deadline.remaining()):
            return await self._look(lambda c: lexicon.statistics(c, query, terms))
        raise DeadlineExceeded("term statistics")

    # revocations: durable before anyone is told

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
        def change(c: Connection, now: float) -> RevocationRecord:
            return revocations.revoke(c, now, tenant, kind, subject, reason, revoked_by)

        return await self._act(act, acts.kept_revocation, change)

    async def revocations_since(
        self, tenant: str, epoch: int, documents: Collection[DocumentRef] = ()
    ) -> RevocationNews:
        return await self._look(lambda c: revocations.since(c, tenant, epoch, documents))

    async def list_revocations(
        self, tenant: str, *, limit: int | None = None, before: str | None = None
    ) -> list[RevocationRecord]:
        return await self._browse(lambda c: revocations.listed(c, tenant, limit, before))

    async def lift(self, tenant: str, revocation_id: str) -> RevocationRecord:
        return await self._write(lambda c, now: revocations.lift(c, now, tenant, revocation_id), durable=True)

    # orders

    async def post_order(self, order: Order) -> None:
        await self._write(lambda c, now: orders.post(c, now, order))

    async def open_orders(self) -> list[Order]:
        return await self._look(orders.open_ones)

    async def reply_to_orders(self, replies: Mapping[str, Reply]) -> None:
        await self._write(lambda c, now: orders.reply(c, now, replies))

    async def order_replies(self, order_id: str) -> list[Reply]:
        return await self._look(lambda c: orders.replies(c, order_id))

    async def withdraw_order(self, order_id: str) -> None:
        await self._write(lambda c, now: orders.withdraw(c, order_id))

    # API keys

    async def add_api_key(self, key: ApiKey) -> None:
        await self._write(lambda c, now: api_keys.add(c, key), durable=True)

    async def api_key(self, key_id: str) -> ApiKey | None:
        return await self._ask(api_keys.found, key_id)

    async def api_keys(self, tenant: str) -> list[ApiKey]:
        return await self._browse(lambda c: api_keys.listed(c, tenant))

    async def revoke_api_key(self, tenant: str, key_id: str) -> ApiKey:
        return await self._write(lambda c, now: api_keys.revoke(c, now, tenant, key_id), durable=True)

    # audit

    async def append(self, record: AuditRecord) -> None:
        await self._write(lambda c, now: audit.append(c, record))

    async def entries(self, tenant: str, limit: int, action: str | None = None) -> list[AuditRecord]:
        return await self._browse(lambda c: audit.entries(c, tenant, limit, action))

    # the journal

    async def journal_incarnation(self) -> str:
        return await self._look(journal.incarnation)

    async def claim_journal(self, lease_s: float, limit: int) -> list[JournalEntry]:
        if not await self._look(journal.is_waiting):
            return []
        return await self._write(lambda c, now: journal.claim(c, now, lease_s, limit))

    async def journaled(self, entries: Sequence[JournalEntry]) -> None:
        await self._write(lambda c, now: journal.sent(c, now, entries))

    async def journal_lag_s(self) -> float:
        return await self._read(journal.lag_s)
