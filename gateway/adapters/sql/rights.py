"""A document's current ACL: set at once, whatever its stored rows still say."""

from sqlalchemy import Connection, select, update

from gateway.access.classes import Acl
from gateway.adapters.sql import audit, classes, moves
from gateway.adapters.sql.leaving import leave
from gateway.adapters.sql.rows import acl_from, bump_epoch
from gateway.adapters.sql.tables import acl_classes, documents
from gateway.errors import NotFound
from gateway.ingest.governance import AclChange, ChangedAcl
from gateway.observe.audit import AuditRecord


def set_acl(connection: Connection, now: float, change: AclChange) -> ChangedAcl:
    kb = moves.kb_of(connection, change.tenant, change.document_id)
    before = None if kb is None else _current(connection, change.document_id)
    if kb is None or before is None:
        raise NotFound("there is no such document")
    if before == change.acl:
        task_id = moves.queue(connection, now, kb, change.document_id, change.deadline_s)
        return ChangedAcl(change.document_id, change.acl, narrowed=False, task_id=task_id)
    connection.execute(
        update(documents)
        .where(documents.c.document_id == change.document_id)
        .values(acl_class=classes.number_of(connection, kb.kb_id, change.acl))
    )
    narrowed = not change.acl.covers(before)
    if narrowed:
        journal(connection, now, change.tenant, change.document_id, change.acl)
        bump_epoch(connection, change.tenant)
    classes.bump_revision(connection, kb.kb_id)
    task_id = moves.queue(connection, now, kb, change.document_id, change.deadline_s)
    _record(connection, now, change, narrowed)
    return ChangedAcl(change.document_id, change.acl, narrowed, task_id)


def _current(connection: Connection, document_id: str) -> Acl | None:
    row = connection.execute(
        select(acl_classes.c.allow, acl_classes.c.deny)
        .join(
            documents,
            (documents.c.kb_id == acl_classes.c.kb_id) & (documents.c.acl_class == acl_classes.c.number),
        )
        .where(documents.c.document_id == document_id, documents.c.deleted_at.is_(None))
    ).one_or_none()
    return None if row is None else acl_from(row.allow, row.deny)


def journal(connection: Connection, now: float, tenant: str, document_id: str, acl: Acl) -> None:
    """That a live document's ACL was narrowed: a restored backup must not widen it again."""
    entry = {
        "tenant": tenant,
        "kind": "acl",
        "document_id": document_id,
        "allow": sorted(acl.allow),
        "deny": sorted(acl.deny),
        "at": now,
    }
    leave(connection, now, "acl", entry)


def _record(connection: Connection, now: float, change: AclChange, narrowed: bool) -> None:
    details = {
        "document": change.document_id,
        "allow": sorted(change.acl.allow),
        "deny": sorted(change.acl.deny),
        "narrowed": narrowed,
    }
    audit.append(connection, AuditRecord(now, change.tenant, change.subject, "document.acl", "", details))
