"""Revocations: the authoritative rows. Each change bumps the tenant's epoch in the same transaction."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import cleanups, moves
from gateway.adapters.sql.leaving import leave
from gateway.adapters.sql.rows import batches, bump_epoch, fresh_id, known_kb, named_kb
from gateway.adapters.sql.server import database_time
from gateway.adapters.sql.tables import document_versions, documents, revocations
from gateway.errors import InvalidField, KnowledgeBaseNotFound, NotFound
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
    kb = _kb_of(connection, tenant, kind, subject)
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
            task_id=_follow(connection, now, kb, kind, subject),
        )
        .returning(revocations)
    )
    record = _record(made.one())
    if kb is not None and kind is RevocationKind.DOCUMENT:
        moves.queue(connection, now, kb, subject, moves.DEADLINE_S)
    leave(
        connection,
        now,
        "revocation",
        {
            "tenant": tenant,
            "kind": kind.value,
            "subject": subject,
            "reason": reason,
            "revoked_by": revoked_by,
            "at": now,
            "revocation_id": record.revocation_id,
        },
    )
    return record


def _follow(
    connection: Connection, now: float, kb: Row[Any] | None, kind: RevocationKind, subject: str
) -> str | None:
    """The clean-up that tells what is left of a document or a knowledge base."""
    if kb is None:
        return None
    if kind is RevocationKind.KNOWLEDGE_BASE:
        return cleanups.queue(connection, now, kb, None)
    return cleanups.queue(connection, now, kb, subject)


def _kb_of(connection: Connection, tenant: str, kind: str, subject: str) -> Row[Any] | None:
    """That of a document or the one itself, locked before anything else is, as every other writer does."""
    if kind == RevocationKind.KNOWLEDGE_BASE.value:
        return known_kb(connection, tenant, subject)
    return moves.kb_of(connection, tenant, subject) if kind == RevocationKind.DOCUMENT.value else None


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


def listed(
    connection: Connection, tenant: str, limit: int | None, before: str | None
) -> list[RevocationRecord]:
    """Newest first, lifted ones too. Raises InvalidField when ``before`` is none of the tenant's."""
    wanted = select(revocations).where(revocations.c.tenant == tenant)
    if before is not None:
        place = wanted.with_only_columns(revocations.c.seq).where(revocations.c.revocation_id == before)
        seq = connection.execute(place).scalar_one_or_none()
        if seq is None:
            raise InvalidField("before is the id of a revocation of this tenant")
        wanted = wanted.where(revocations.c.seq < seq)
    rows = connection.execute(wanted.order_by(revocations.c.seq.desc()).limit(limit))
    return [_record(row) for row in rows]


def since(connection: Connection, tenant: str, epoch: int, refs: Collection[DocumentRef]) -> RevocationNews:
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
    deletions: dict[DocumentRef, float] = {}
    for batch in batches(tuple(refs)):
        deletions |= _deletions(connection, tenant, batch)
    return RevocationNews(database_time(connection), records, deletions)


def _deletions(connection: Connection, tenant: str, refs: Sequence[DocumentRef]) -> dict[DocumentRef, float]:
    deleted = (
        select(document_versions.c.document_id, document_versions.c.version, document_versions.c.deleted_at)
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(
            documents.c.document_id.in_({ref.document_id for ref in refs}),
            documents.c.tenant == tenant,
            document_versions.c.deleted_at.is_not(None),
        )
    )
    found = {DocumentRef(row.document_id, row.version): row.deleted_at for row in connection.execute(deleted)}
    return {ref: found[ref] for ref in refs if ref in found}


def lift(connection: Connection, now: float, tenant: str, revocation_id: str) -> RevocationRecord:
    mine = (revocations.c.revocation_id == revocation_id, revocations.c.tenant == tenant)
    found = connection.execute(select(revocations.c.kind, revocations.c.subject).where(*mine)).one_or_none()
    if found is None:
        raise NotFound()
    kb = _kb_of(connection, tenant, found.kind, found.subject)
    row = connection.execute(select(revocations).where(*mine).with_for_update()).one()
    if row.lifted_at is not None:
        return _record(row)
    bump_epoch(connection, tenant)
    lifted = connection.execute(
        update(revocations).where(*mine).values(lifted_at=now).returning(revocations)
    ).one()
    if kb is not None and found.kind == RevocationKind.DOCUMENT.value:
        moves.queue(connection, now, kb, found.subject, moves.DEADLINE_S)
    told = {"tenant": tenant, "kind": found.kind, "subject": found.subject, "at": now}
    leave(connection, now, "lift", {**told, "revocation_id": revocation_id})
    return _record(lifted)


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
        task_id=row.task_id,
    )
