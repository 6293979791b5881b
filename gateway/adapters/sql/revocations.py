"""Revocations: the authoritative rows. Each change bumps the tenant's epoch in the same transaction."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from gateway.adapters.sql.rows import batches, bump_epoch, fresh_id, named_kb
from gateway.adapters.sql.server import database_time
from gateway.adapters.sql.tables import documents, revocations
from gateway.errors import KnowledgeBaseNotFound, NotFound
from gateway.stream.revocation import RevocationKind, RevocationNews, RevocationRecord


def revoke(
    connection: Connection,
    now: float,
    tenant: str,
    kind: RevocationKind,
    subject: str,
    reason: str,
    revoked_by: str,
) -> RevocationRecord:
    _must_exist(connection, tenant, kind, subject)
    known = connection.execute(
        select(revocations).where(
            revocations.c.tenant == tenant,
            revocations.c.kind == kind.value,
            revocations.c.subject == subject,
            revocations.c.lifted_at.is_(None),
        )
    ).one_or_none()
    if known is not None:
        return _record(known)
    made = connection.execute(
        insert(revocations)
        .values(
            # First, because in PostgreSQL the epoch's row lock orders two revocations of one tenant.
            revocation_epoch=bump_epoch(connection, tenant),
            revocation_id=fresh_id("rvk"),
            tenant=tenant,
            kind=kind.value,
            subject=subject,
            reason=reason,
            revoked_by=revoked_by,
            created_at=now,
            lifted_at=None,
        )
        .returning(revocations)
    )
    return _record(made.one())


def _must_exist(connection: Connection, tenant: str, kind: RevocationKind, subject: str) -> None:
    """Users and groups live elsewhere, so any name may be revoked."""
    if kind is RevocationKind.KNOWLEDGE_BASE and named_kb(connection, tenant, subject) is None:
        raise KnowledgeBaseNotFound()
    if kind is RevocationKind.DOCUMENT:
        owned = select(documents.c.document_id).where(
            documents.c.document_id == subject, documents.c.tenant == tenant
        )
        if connection.execute(owned).one_or_none() is None:
            raise NotFound()


def listed(connection: Connection, tenant: str) -> list[RevocationRecord]:
    """Newest first, lifted ones too."""
    rows = connection.execute(
        select(revocations).where(revocations.c.tenant == tenant).order_by(revocations.c.seq.desc())
    )
    return [_record(row) for row in rows]


def since(connection: Connection, tenant: str, epoch: int, document_ids: Collection[str]) -> RevocationNews:
    """In force and newer than the epoch, oldest first, with the database's own time."""
    rows = connection.execute(
        select(revocations)
        .where(
            revocations.c.tenant == tenant,
            revocations.c.revocation_epoch > epoch,
            revocations.c.lifted_at.is_(None),
        )
        .order_by(revocations.c.revocation_epoch)
    )
    records = tuple(_record(row) for row in rows)
    deletions: dict[str, float] = {}
    for batch in batches(tuple(document_ids)):
        deletions |= _deletions(connection, tenant, batch)
    return RevocationNews(database_time(connection), records, deletions)


def _deletions(connection: Connection, tenant: str, document_ids: Sequence[str]) -> dict[str, float]:
    deleted = select(documents.c.document_id, documents.c.deleted_at).where(
        documents.c.document_id.in_(document_ids),
        documents.c.tenant == tenant,
        documents.c.deleted_at.is_not(None),
    )
    return {row.document_id: row.deleted_at for row in connection.execute(deleted)}


def lift(connection: Connection, now: float, tenant: str, revocation_id: str) -> RevocationRecord:
    mine = (revocations.c.revocation_id == revocation_id, revocations.c.tenant == tenant)
    row = connection.execute(select(revocations).where(*mine).with_for_update()).one_or_none()
    if row is None:
        raise NotFound()
    if row.lifted_at is not None:
        return _record(row)
    bump_epoch(connection, tenant)
    lifted = connection.execute(update(revocations).where(*mine).values(lifted_at=now).returning(revocations))
    return _record(lifted.one())


def _record(row: Row[Any]) -> RevocationRecord:
    return RevocationRecord(
        revocation_id=row.revocation_id,
        tenant=row.tenant,
        kind=RevocationKind(row.kind),
        subject=row.subject,
        reason=row.reason,
        revoked_by=row.revoked_by,
        revocation_epoch=row.revocation_epoch,
        created_at=row.created_at,
        lifted_at=row.lifted_at,
    )
