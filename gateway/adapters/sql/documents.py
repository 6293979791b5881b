"""Documents as their importers see them, and their deletion."""

from typing import Any

from sqlalchemy import Connection, Row, and_, select, update

from gateway.adapters.sql import classes
from gateway.adapters.sql.rows import acl_from, bump_epoch, locked_kb
from gateway.adapters.sql.tables import acl_classes, document_versions, documents, knowledge_bases
from gateway.adapters.sql.versions import error_of
from gateway.ingest.uploads import DocumentRecord
from gateway.release.model import VersionState

_LIVE = (
    select(
        documents,
        document_versions.c.version,
        document_versions.c.state,
        document_versions.c.title,
        document_versions.c.category,
        document_versions.c.error_reason,
        document_versions.c.error_detail,
        acl_classes.c.allow,
        acl_classes.c.deny,
        knowledge_bases.c.name.label("knowledge_base"),
    )
    .join(knowledge_bases, knowledge_bases.c.kb_id == documents.c.kb_id)
    .join(
        document_versions,
        and_(
            document_versions.c.document_id == documents.c.document_id,
            document_versions.c.version == documents.c.newest_version,
        ),
    )
    .join(
        acl_classes,
        and_(acl_classes.c.kb_id == documents.c.kb_id, acl_classes.c.number == documents.c.acl_class),
    )
    .where(documents.c.deleted_at.is_(None))
)


def live(connection: Connection, tenant: str, knowledge_base: str) -> list[DocumentRecord]:
    """By source, in order of code points."""
    rows = connection.execute(
        _LIVE.where(knowledge_bases.c.tenant == tenant, knowledge_bases.c.name == knowledge_base)
    )
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
    )


def delete(connection: Connection, now: float, tenant: str, document_id: str) -> bool:
    kb_id = connection.execute(
        select(documents.c.kb_id).where(documents.c.document_id == document_id, documents.c.tenant == tenant)
    ).scalar_one_or_none()
    if kb_id is None:
        return False
    locked_kb(connection, kb_id)  # first, as every other writer does: else two could wait for each other
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
        return False
    # A later import under the same source must not bring the deleted versions back.
    connection.execute(
        update(document_versions)
        .where(document_versions.c.document_id == document_id, document_versions.c.withdrawn_at.is_(None))
        .values(withdrawn_at=now)
    )
    bump_epoch(connection, tenant)
    classes.bump_revision(connection, kb_id)
    return True
