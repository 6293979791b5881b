"""SqlCatalog: every catalog port over one database, each method one transaction."""

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import URL, Connection

from gateway.access.act import Act
from gateway.access.apikey import ApiKey
from gateway.access.authorizer import DocumentRef, DocumentStanding, RevocationSet, TenantStamp
from gateway.access.classes import AclClass
from gateway.adapters.sql import (
    access,
    activation,
    acts,
    api_keys,
    audit,
    classes,
    diffs,
    documents,
    imports,
    journal,
    lexicon,
    orders,
    purging,
    releases,
    restoring,
    revocations,
    server,
    snapshots,
    task_records,
    tasks,
    versions,
)
from gateway.adapters.sql.catalog_governance import SqlGovernance
from gateway.adapters.sql.catalog_remains import SqlRemains
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.lock import exclusively, private_file
from gateway.adapters.sql.migrations import check_schema, migrate
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.rows import fresh_id, insert_missing
from gateway.adapters.sql.sqlite import SqliteDatabase, has_wal_reset_bug
from gateway.adapters.sql.tables import meta
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from gateway.ingest.journal import JournalEntry
from gateway.ingest.plan import Activation, ClassTerms, ReleasePlan
from gateway.ingest.task import Ending, TaskClaim, TaskQuery, TaskRecord
from gateway.ingest.uploads import Accepted, DocumentRecord, ImportRequest
from gateway.ingest.version import BuiltVersion, VectorPlace, VersionJob
from gateway.observe.audit import AuditRecord
from gateway.observe.logging import get_logger
from gateway.release.diff import ReleaseDiff
from gateway.release.model import (
    EmbeddingSpace,
    KnowledgeBaseRecord,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
    RetrievalRelease,
    VersionState,
)
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery
from gateway.stream.orders import Order, Reply
from gateway.stream.revocation import RevocationKind, RevocationNews, RevocationRecord

#: asked for when the feed looks on behalf of nobody; a tenant's name is never empty
_NOBODY = ""


@contextlib.asynccontextmanager
async def open_catalog(path: Path, *, clock: Callable[[], float] = time.time) -> AsyncIterator["SqlCatalog"]:
    """The catalog in a SQLite file that only this process may open; made and migrated as needed.

    ``clock`` gives seconds since the epoch. Raises ConfigurationError (``data_dir_in_use``,
    ``data_dir_unusable``), CatalogUnavailable.
    """
    with exclusively(path):
        await anyio.to_thread.run_sync(_prepare, path)
        database = SqliteDatabase(path, clock)
        try:
            await database.write(_keep_incarnation)
            yield SqlCatalog(database)
        finally:
            await database.aclose()


def _prepare(path: Path) -> None:
    os.close(private_file(path))
    if has_wal_reset_bug():
        get_logger("catalog").info("catalog.sqlite_has_wal_reset_bug", version=sqlite3.sqlite_version)
    migrate(URL.create("sqlite", database=str(path)))


@contextlib.asynccontextmanager
async def open_postgres(
    url: str, *, connections: int, cap_s: float, clock: Callable[[], float] | None = None
) -> AsyncIterator["SqlCatalog"]:
    """The catalog in a PostgreSQL database that others use as well; never migrates it.

    At most ``connections`` (2 or more) are open at once. A request's reads answer or fail within
    ``cap_s``; a write or a listing fails within ``cap_s`` when the server says nothing. ``clock``
    gives seconds since the epoch; None is the server's. Raises ConfigurationError
    (``schema_not_migrated``, ``schema_unknown``, ``database_url_invalid``), CatalogUnavailable.
    """
    database = PostgresDatabase(postgres_url(url), connections=connections, cap_s=cap_s, clock=clock)
    try:
        await database.browse(check_schema)
        await database.write(_keep_incarnation)
        yield SqlCatalog(database)
    finally:
        await database.aclose()


def _keep_incarnation(connection: Connection, now: float) -> None:
    insert_missing(connection, meta, [{"key": access.INCARNATION, "value": fresh_id("inc")}])


class SqlCatalog(SqlGovernance, SqlRemains):
    """Implements AccessCatalog, ReleaseCatalog, TaskStore, VersionStore, ReleaseStore,
    RevocationCatalog, OrderBoard, ApiKeyStore, AuditLog, JournalOutbox and Lexicon; their docstrings are the
    contract.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database
        self._ask = database.ask
        self._look = database.look
        self._read = database.read
        self._browse = database.browse
        self._write = database.write

    async def _act(
        self,
        act: Act | None,
        kept: Callable[[Mapping[str, Any]], acts.Answer],
        change: Callable[[Connection, float], acts.Answer],
    ) -> acts.Answer:
        """Durable: a power cut must not bring back a release, or an ACL, that was left behind."""
        return await self._write(
            lambda c, now: acts.once(c, now, act, kept, lambda: change(c, now)), durable=True
        )

    @property
    def database(self) -> Database:
        """For what only an operator does with it."""
        return self._database

    async def ping(self) -> None:
        """Raises CatalogUnavailable when the database can't be read, RestoreUnconfirmed."""
        await self._look(restoring.check_confirmed)

    async def is_confirmed(self) -> bool:
        """False while the catalog comes from a backup and waits for an operator's word."""
        return await self._look(restoring.is_confirmed)

    async def server_version(self) -> str:
        """``PostgreSQL 15.6 (Debian …)``, ``SQLite 3.40.1``."""
        return await self._look(server.version)

    async def clock_skew_s(self) -> float:
        """How far the database's clock is ahead of this machine's."""
        before = time.time()
        there = await self._look(server.database_time)
        return there - (before + time.time()) / 2

    async def excess_privileges(self) -> list[str]:
        """What our account in the database could do and must not in production; empty: it is fit for it."""
        return await self._read(server.excess_privileges)

    # access

    async def tenant_stamp(self, tenant: str) -> TenantStamp:
        return restoring.confirmed(await self._ask(access.tenant_stamps, tenant))

    async def tenant_stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        return await self._look(lambda c: access.tenant_stamps(c, tuple(tenants) or (_NOBODY,)))

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        return await self._look(lambda c: classes.in_use(c, tenant, kb_id))

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

    async def list_revocations(self, tenant: str) -> list[RevocationRecord]:
        return await self._browse(lambda c: revocations.listed(c, tenant))

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

    # tasks

    async def accept_import(self, request: ImportRequest) -> Accepted:
        return await self._act(
            request.act, acts.kept_acceptance, lambda c, now: imports.accept(c, now, request)
        )

    async def accept_release(
        self, tenant: str, knowledge_base: str, deadline_s: float, *, act: Act | None = None
    ) -> Accepted:
        def change(c: Connection, now: float) -> Accepted:
            return tasks.accept_release(c, now, tenant, knowledge_base, deadline_s)

        return await self._act(act, acts.kept_acceptance, change)

    async def claim(self, worker: str, lease_s: float, attempts: int) -> TaskClaim | None:
        if not await self._look(restoring.is_confirmed):
            return None
        await self._write(lambda c, now: tasks.end_the_hopeless(c, now, attempts))
        return await self._write(lambda c, now: tasks.claim(c, now, worker, lease_s, attempts), loosely=True)

    async def heartbeat(self, claim: TaskClaim, lease_s: float) -> bool:
        return await self._write(lambda c, now: tasks.heartbeat(c, now, claim, lease_s))

    async def progress(self, claim: TaskClaim, stage: str, done: int, total: int) -> None:
        await self._write(lambda c, now: tasks.progress(c, now, claim, stage, done, total))

    async def finish(self, claim: TaskClaim, ending: Ending) -> None:
        await self._write(lambda c, now: tasks.finish(c, now, claim, ending))

    async def release_claim(self, claim: TaskClaim) -> None:
        await self._write(lambda c, now: tasks.release_claim(c, now, claim))

    async def put_off(self, claim: TaskClaim, trouble: str, rest_s: float) -> None:
        await self._write(lambda c, now: tasks.put_off(c, now, claim, trouble, rest_s))

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None:
        return await self._read(lambda c: task_records.one(c, tenant, task_id))

    async def tasks(self, tenant: str, query: TaskQuery) -> list[TaskRecord]:
        return await self._browse(lambda c: task_records.listed(c, tenant, query))

    async def request_cancel(self, tenant: str, task_id: str) -> bool:
        return await self._write(lambda c, now: tasks.request_cancel(c, now, tenant, task_id))

    async def purge(self, keys_s: float, tasks_s: float) -> int:
        return await self._write(lambda c, now: purging.purge(c, now, keys_s, tasks_s))

    # the journal

    async def claim_journal(self, lease_s: float, limit: int) -> list[JournalEntry]:
        if not await self._look(journal.is_waiting):
            return []
        return await self._write(lambda c, now: journal.claim(c, now, lease_s, limit))

    async def journaled(self, entries: Sequence[JournalEntry]) -> None:
        await self._write(lambda c, now: journal.sent(c, now, entries))

    async def journal_lag_s(self) -> float:
        return await self._read(journal.lag_s)

    # versions and documents

    async def unfinished_versions(self, claim: TaskClaim) -> list[VersionJob]:
        return await self._browse(lambda c: versions.unfinished(c, claim))

    async def advance_version(self, claim: TaskClaim, ref: DocumentRef, state: VersionState) -> None:
        await self._write(lambda c, now: versions.advance(c, claim, ref, state))

    async def complete_version(self, claim: TaskClaim, built: BuiltVersion) -> None:
        await self._write(lambda c, now: versions.complete(c, claim, built))

    async def fail_version(self, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None:
        await self._write(lambda c, now: versions.fail(c, claim, ref, reason, detail))

    async def vector_places(self, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]:
        return await self._browse(lambda c: versions.places(c, space_id, text_hashes))

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        await self._write(lambda c, now: versions.add_places(c, claim, space_id, places))

    async def documents(self, tenant: str, knowledge_base: str) -> list[DocumentRecord]:
        return await self._browse(lambda c: documents.live(c, tenant, knowledge_base))

    async def document(self, tenant: str, document_id: str) -> DocumentRecord | None:
        return await self._look(lambda c: documents.one(c, tenant, document_id))

    async def delete_document(self, tenant: str, document_id: str) -> str | None:
        return await self._write(lambda c, now: documents.delete(c, now, tenant, document_id), durable=True)

    # releases

    async def begin_release(
        self, claim: TaskClaim, space: EmbeddingSpace, config: RetrievalConfig
    ) -> ReleasePlan:
        return await self._write(lambda c, now: snapshots.begin(c, now, claim, space, config))

    async def advance_release(
        self,
        claim: TaskClaim,
        release_id: str,
        state: ReleaseState,
        *,
        barrier: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> None:
        await self._write(lambda c, now: releases.advance(c, claim, release_id, state, barrier, error))

    async def store_terms(self, claim: TaskClaim, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
        await self._write(lambda c, now: releases.store_terms(c, claim, kb_revision, classes))

    async def activate(
        self,
        tenant: str,
        release_id: str,
        expected_sequence: int | None,
        claim: TaskClaim | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.activate(c, now, tenant, release_id, expected_sequence, claim)

        return await self._act(act, acts.kept_activation, change)

    async def roll_back(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.roll_back(c, now, tenant, knowledge_base, expected_sequence)

        return await self._act(act, acts.kept_activation, change)

    async def roll_back_config(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        def change(c: Connection, now: float) -> Activation:
            return activation.roll_back_config(c, now, tenant, knowledge_base, expected_sequence)

        return await self._act(act, acts.kept_activation, change)

    async def diff_releases(self, tenant: str, release_id: str, against: str | None = None) -> ReleaseDiff:
        return await self._browse(lambda c: diffs.diff(c, tenant, release_id, against))

    async def knowledge_bases(self, tenant: str) -> list[KnowledgeBaseRecord]:
        return await self._browse(lambda c: releases.knowledge_bases_of(c, tenant))

    async def releases(self, tenant: str, knowledge_base: str) -> list[ReleaseRecord]:
        return await self._browse(lambda c: releases.listed(c, tenant, knowledge_base))

    async def release(self, tenant: str, release_id: str) -> ReleaseRecord | None:
        return await self._look(lambda c: releases.one(c, tenant, release_id))

    async def mark_reclaimed(self, tenant: str, release_id: str) -> None:
        await self._write(lambda c, now: activation.mark_reclaimed(c, tenant, release_id))
