"""Approvals: a person's word on one document version."""

import json
from typing import Any

from sqlalchemy import Connection, Row, select, update

from gateway.adapters.sql import audit, moves, rejections, snapshots
from gateway.adapters.sql.tables import document_versions, documents
from gateway.errors import Conflict, NotFound
from gateway.ingest.governance import Approval, Decision, Verdict
from gateway.observe.audit import AuditRecord
from gateway.release.model import VersionState
from gateway.retrieval.risk import APPROVED, REJECTED, markers_of

_MEANING = {Decision.APPROVE: APPROVED, Decision.REJECT: REJECTED}


def judge(connection: Connection, now: float, verdict: Verdict) -> Approval:
    kb = moves.kb_of(connection, verdict.tenant, verdict.document_id)  # locked, as builds and deletions do
    row = _version(connection, verdict)
    approval = _MEANING[verdict.decision]
    if row.approval == approval:
        return _approval(row)
    mine = (
        document_versions.c.document_id == verdict.document_id,
        document_versions.c.version == verdict.document_version,
    )
    changed = connection.execute(
        update(document_versions)
        .where(*mine)
        .values(approval=approval, approved_by=verdict.subject, approved_at=now, approval_note=verdict.note)
        .returning(document_versions)
    ).one()
    if kb is not None:
        snapshots.count_judged(connection, kb.kb_id)
    if approval == REJECTED:
        rejections.journal(connection, now, verdict, row.content_sha256)
    details = {
        "document": verdict.document_id,
        "version": verdict.document_version,
        "approval": approval,
        "note": verdict.note,
    }
    audit.append(
        connection, AuditRecord(now, verdict.tenant, verdict.subject, "document.approval", "", details)
    )
    return _approval(changed)


def _version(connection: Connection, verdict: Verdict) -> Row[Any]:
    """Raises NotFound, Conflict."""
    row = connection.execute(
        select(document_versions)
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(
            documents.c.document_id == verdict.document_id,
            documents.c.tenant == verdict.tenant,
            documents.c.deleted_at.is_(None),
            document_versions.c.version == verdict.document_version,
        )
    ).one_or_none()
    if row is None:
        raise NotFound("there is no such document version")
    if row.state != VersionState.READY.value or row.withdrawn_at is not None:
        raise Conflict("only a version that is ready can be approved or rejected")
    return row


def _approval(row: Row[Any]) -> Approval:
    return Approval(
        document_id=row.document_id,
        document_version=row.version,
        approval=row.approval,
        approved_by=row.approved_by or "",
        approved_at=row.approved_at or 0.0,
        note=row.approval_note or "",
        risk=markers_of(json.loads(row.risk), row.approval),
    )
