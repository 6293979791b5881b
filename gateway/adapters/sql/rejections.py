"""Rejections: what a person has refused stays out, whoever goes back, restores or sends the bytes again."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, exists, select, tuple_, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.leaving import leave
from gateway.adapters.sql.rows import batches, bump_epoch
from gateway.adapters.sql.tables import document_versions, documents, release_documents
from gateway.ingest.governance import Verdict
from gateway.retrieval.risk import REJECTED

_rejected = document_versions.alias("rejected")


def journal(connection: Connection, now: float, verdict: Verdict, content_sha256: str) -> None:
    """A restored backup must not show the version again."""
    entry = {
        "tenant": verdict.tenant,
        "document_id": verdict.document_id,
        "version": verdict.document_version,
        "content_sha256": content_sha256,
        "subject": verdict.subject,
        "note": verdict.note,
        "at": now,
    }
    leave(connection, now, "rejection", entry)


def again(connection: Connection, now: float, act: Mapping[str, Any]) -> None:
    """After a restore: the version is rejected, whatever has become of it, and gone at once. One that was
    imported after the backup is gone with its bytes.
    """
    changed = connection.execute(
        update(document_versions)
        .where(
            document_versions.c.document_id == act["document_id"],
            document_versions.c.version == act["version"],
            document_versions.c.content_sha256 == act["content_sha256"],
            exists().where(
                documents.c.document_id == document_versions.c.document_id,
                documents.c.tenant == act["tenant"],
            ),
        )
        .values(
            approval=REJECTED,
            approved_by=act["subject"],
            approved_at=act["at"],
            approval_note=act["note"],
            withdrawn_at=now,
        )
    )
    if changed.rowcount:
        bump_epoch(connection, act["tenant"])


def withdraw(connection: Connection, now: float, release_id: str) -> None:
    """Before a rollback to the release: what it holds that was rejected meanwhile isn't shown again."""
    held = exists().where(
        release_documents.c.release_id == release_id,
        release_documents.c.document_id == document_versions.c.document_id,
        release_documents.c.version == document_versions.c.version,
    )
    connection.execute(
        update(document_versions)
        .where(
            held,
            document_versions.c.approval == REJECTED,
            document_versions.c.withdrawn_at.is_(None),
        )
        .values(withdrawn_at=now)
    )


def repeated(connection: Connection, kb_id: str, refs: Sequence[DocumentRef]) -> frozenset[DocumentRef]:
    """Those with the same bytes as a version that was rejected in the knowledge base. Originals are named
    by their tenant and their content.
    """
    same = and_(
        _rejected.c.original_key == document_versions.c.original_key, _rejected.c.approval == REJECTED
    )
    known = (
        select(document_versions.c.document_id, document_versions.c.version)
        .join(_rejected, same)
        .join(documents, documents.c.document_id == _rejected.c.document_id)
        .where(documents.c.kb_id == kb_id)
    )
    ref = tuple_(document_versions.c.document_id, document_versions.c.version)
    found: set[DocumentRef] = set()
    for batch in batches(refs):
        pairs = [(each.document_id, each.document_version) for each in batch]
        found |= {DocumentRef(*row) for row in connection.execute(known.where(ref.in_(pairs)))}
    return frozenset(found)
