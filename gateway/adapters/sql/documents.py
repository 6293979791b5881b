"""Documents as their importers see them, and their deletion."""

import json
from typing import Any

from sqlalchemy import Connection, Row, and_, func, or_, select, update

from gateway.adapters.sql import classes, cleanups
from gateway.adapters.sql.leaving import leave
from gateway.adapters.sql.rows import acl_from, bump_epoch, by_code_points, locked_kb
from gateway.adapters.sql.tables import (
    acl_classes,
    document_versions,
    documents,
    knowledge_bases,
    revocations,
)
from gateway.adapters.sql.versions import error_of
from gateway.ingest.uploads import DocumentRecord, StandingVersion
from gateway.release.model import VersionState
from gateway.retrieval.risk import markers_of
from gateway.stream.revocation import RevocationKind

_STANDING = document_versions.alias("standing")
_CANDIDATE = document_versions.alias("candidate")
_IS_STANDING = and_(
    _STANDING.c.document_id == documents.c.document_id,
    _STANDING.c.version
    == select(func.max(_CANDIDATE.c.version))
    .where(
        _CANDIDATE.c.document_id == documents.c.document_id,
        _CANDIDATE.c.state != VersionState.FAILED.value,
        _CANDIDATE.c.withdrawn_at.is_(None),
    )
    .correlate(documents)
    .scalar_subquery(),
)

_REVOKED_AT = (
    select(func.min(revocations.c.created_at))
    .where(
        revocations.c.tenant == documents.c.tenant,
        revocations.c.lifted_at.is_(None),
        or_(
            and_(
                revocations.c.kind == RevocationKind.DOCUMENT.value,
                revocations.c.subject == documents.c.document_id,
            ),
            and_(
                revocations.c.kind == RevocationKind.KNOWLEDGE_BASE.value,
                revocations.c.subject == knowledge_bases.c.name,
            ),
        ),
    )
    .correlate(documents, knowledge_bases)
    .scalar_subquery()
)

_LIVE = (
    select(
        documents,
        document_versions.c.version,
        document_versions.c.state,
        document_versions.c.title,
        document_versions.c.category,
        document_versions.c.error_reason,
        document_versions.c.error_detail,
        document_versions.c.withdrawn_at,
        _STANDING.c.version.label("standing_version"),
        _STANDING.c.state.label("standing_state"),
        _STANDING.c.content_sha256,
        _STANDING.c.size_bytes,
        _STANDING.c.fingerprint,
        document_versions.c.approval,
        document_versions.c.approved_by,
        document_versions.c.approved_at,
        document_versions.c.risk,
        acl_classes.c.allow,
        acl_classes.c.deny,
        knowledge_bases.c.name.label("knowledge_base"),
        _REVOKED_AT.label("revoked_at"),
    )
    .join(knowledge_bases, knowledge_bases.c.kb_id == documents.c.kb_id)
    .join(
        document_versions,
        and_(
            document_versions.c.document_id == documents.c.document_id,
            document_versions.c.version == documents.c.newest_version,
        ),
    )
    .outerjoin(_STANDING, _IS_STANDING)
    .join(
        acl_classes,
        and_(acl_classes.c.kb_id == documents.c.kb_id, acl_classes.c.number == documents.c.acl_class),
    )
    .where(documents.c.deleted_at.is_(None))
)


def live(
    connection: Connection, tenant: str, knowledge_base: str, limit: int | None, after: str | None
) -> list[DocumentRecord]:
    """By source, in order of code points."""
    source = by_code_points(connection, documents.c.source)
    wanted = (
        select(documents.c.document_id)
        .join(knowledge_bases, knowledge_bases.c.kb_id == documents.c.kb_id)
        .where(
            knowledge_bases.c.tenant == tenant,
            knowledge_bases.c.name == knowledge_base,
            documents.c.deleted_at.is_(None),
        )
    )
    if after is not None:
        wanted = wanted.where(source > after)
    page = wanted.order_by(source).limit(limit)  # first: what stands is looked up for these alone
    rows = connection.execute(_LIVE.where(documents.c.document_id.in_(page)))
    return sorted(map(_record, rows), key=lambda record: record.source)


def one(connection: Connection, tenant: str, document_id: str) -> DocumentRecord | None:
    row = connection.execute(
        _LIVE.where(documents.c.document_id == document_id, documents.c.tenant == tenant)
    ).one_or_none()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> DocumentRecord:
    acl = acl_from(row.allow, row.deny)
    return DocumentRecord(
        document_id=row.document_id,
        knowledge_base=row.knowledge_base,
        source=row.source,
        document_version=row.version,
        state=VersionState(row.state),
        title=row.title,
        category=row.category,
        allow=tuple(sorted(acl.allow)),
        deny=tuple(sorted(acl.deny)),
        error=error_of(row),
        created_at=row.created_at,
        standing=_standing(row),
        withdrawn=row.withdrawn_at is not None,
        approval=row.approval,
        approved_by=row.approved_by,
        approved_at=row.approved_at,
        risk=markers_of(json.loads(row.risk), row.approval),
        revoked_at=row.revoked_at,
    )


def _standing(row: Row[Any]) -> StandingVersion | None:
    if row.standing_version is None:
        return None
    return StandingVersion(
        document_version=row.standing_version,
        state=VersionState(row.standing_state),
        content_sha256=row.content_sha256,
        size_bytes=row.size_bytes,
        fingerprint=row.fingerprint,
    )


def delete(connection: Connection, now: float, tenant: str, document_id: str) -> str | None:
    kb_id = connection.execute(
        select(documents.c.kb_id).where(documents.c.document_id == document_id, documents.c.tenant == tenant)
    ).scalar_one_or_none()
    if kb_id is None:
        return None
    kb = locked_kb(connection, kb_id)  # first, as every other writer does: else two could wait for each other
    marked = connection.execute(
        update(documents)
        .where(
            documents.c.document_id == document_id,
            documents.c.tenant == tenant,
            documents.c.deleted_at.is_(None),
        )
        .values(deleted_at=now)
    )
    if marked.rowcount != 1:
        return None
    _delete_versions(connection, now, document_id)
    bump_epoch(connection, tenant)
    classes.bump_revision(connection, kb_id)
    leave(connection, now, "deletion", {"tenant": tenant, "document_id": document_id, "at": now})
    return cleanups.queue(connection, now, kb, document_id)


def _delete_versions(connection: Connection, now: float, document_id: str) -> None:
    """A later import under the same source brings none of them back, and whoever reads one still is told."""
    mine = document_versions.c.document_id == document_id
    for column in ("withdrawn_at", "deleted_at"):
        connection.execute(
            update(document_versions).where(mine, document_versions.c[column].is_(None)).values({column: now})
        )
