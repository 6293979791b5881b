"""Accepting an upload: versions, task and outbox, in one transaction with its act."""

from typing import Any

from sqlalchemy import Connection, Row, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import access, classes, moves, references, rights, tasks
from gateway.adapters.sql.rows import add, made_kb, to_json
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    task_documents,
)
from gateway.errors import Conflict
from gateway.ingest.task import TaskKind
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument
from gateway.release.model import VersionState
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.risk import APPROVED, needs_approval


def accept(connection: Connection, now: float, request: ImportRequest) -> Accepted:
    if request.knowledge_base in access.in_force(connection, request.tenant).knowledge_bases:
        raise Conflict("this knowledge base is revoked")
    kb = made_kb(connection, request.tenant, request.knowledge_base, now)
    originals = [document.original_key for document in request.documents]
    references.keep(connection, now, originals, looks_again=True)
    task_id = tasks.add_task(
        connection,
        now,
        TaskKind.IMPORT,
        kb,
        request.deadline_s,
        subject=request.subject,
        activate=request.activate,
        allow_partial=request.allow_partial,
    )
    return Accepted(task_id, _accept_documents(connection, now, kb, task_id, request))


def _accept_documents(
    connection: Connection, now: float, kb: Row[Any], task_id: str, request: ImportRequest
) -> tuple[AcceptedDocument, ...]:
    accepted = []
    permissions_changed = False
    for upload in request.documents:
        acl_class = classes.number_of(connection, kb.kb_id, upload.acl)
        ref, changed = _accept_document(
            connection,
            now,
            kb,
            task_id,
            upload,
            acl_class,
            subject=request.subject,
            deadline_s=request.deadline_s,
        )
        permissions_changed |= changed
        accepted.append(AcceptedDocument(ref.document_id, ref.document_version, upload.source))
    if permissions_changed:
        classes.bump_revision(connection, kb.kb_id)
    refs = dict.fromkeys(DocumentRef(d.document_id, d.document_version) for d in accepted)
    for position, ref in enumerate(refs):
        add(
            connection,
            task_documents,
            task_id=task_id,
            position=position,
            document_id=ref.document_id,
            version=ref.document_version,
        )
    tasks.set_total(connection, task_id, len(refs))
    return tuple(accepted)


def _accept_document(
    connection: Connection,
    now: float,
    kb: Row[Any],
    task_id: str,
    upload: NewDocument,
    acl_class: int,
    *,
    subject: str,
    deadline_s: float,
) -> tuple[DocumentRef, bool]:
    """The version that stands for the upload, and whether it changed who may see what."""
    document_id = "doc_" + stable_hash(kb.tenant, kb.kb_id, upload.source)
    known = connection.execute(select(documents).where(documents.c.document_id == document_id)).one_or_none()
    changed = _changes_permissions(connection, kb, known, acl_class)
    if known is not None and known.deleted_at is None:
        rights.journal_narrowing(connection, now, kb.tenant, document_id, upload.acl)
        standing = _standing_version(connection, document_id)
        if standing is not None and standing.fingerprint == upload.fingerprint:
            _set_current(connection, document_id, acl_class, known.newest_version)
            if changed:  # no new version brings new rows
                moves.queue(connection, now, kb, document_id, deadline_s)
            return DocumentRef(document_id, standing.version), changed
    version = 1 if known is None else known.newest_version + 1
    if known is None:
        _add_document(connection, now, kb, document_id, upload.source, acl_class)
    else:
        _set_current(connection, document_id, acl_class, version)
    ref = DocumentRef(document_id, version)
    _add_version(connection, now, task_id, ref, upload, acl_class, subject)
    return ref, changed


def _changes_permissions(
    connection: Connection, kb: Row[Any], known: Row[Any] | None, acl_class: int
) -> bool:
    if known is None:
        return not classes.is_used(connection, kb.kb_id, acl_class)
    return known.deleted_at is not None or known.acl_class != acl_class


def _standing_version(connection: Connection, document_id: str) -> Row[Any, Any] | None:
    """The newest version that neither failed nor was withdrawn."""
    return connection.execute(
        select(document_versions.c.version, document_versions.c.fingerprint)
        .where(
            document_versions.c.document_id == document_id,
            document_versions.c.state != VersionState.FAILED.value,
            document_versions.c.withdrawn_at.is_(None),
        )
        .order_by(document_versions.c.version.desc())
        .limit(1)
    ).one_or_none()


def _set_current(connection: Connection, document_id: str, acl_class: int, version: int) -> None:
    connection.execute(
        update(documents)
        .where(documents.c.document_id == document_id)
        .values(acl_class=acl_class, newest_version=version, deleted_at=None)
    )


def _add_document(
    connection: Connection, now: float, kb: Row[Any], document_id: str, source: str, acl_class: int
) -> None:
    add(
        connection,
        documents,
        document_id=document_id,
        tenant=kb.tenant,
        kb_id=kb.kb_id,
        source=source,
        acl_class=acl_class,
        newest_version=1,
        deleted_at=None,
        created_at=now,
    )


def _add_version(
    connection: Connection,
    now: float,
    task_id: str,
    ref: DocumentRef,
    upload: NewDocument,
    acl_class: int,
    subject: str,
) -> None:
    add(
        connection,
        document_versions,
        document_id=ref.document_id,
        version=ref.document_version,
        task_id=task_id,
        fence=0,
        state=VersionState.PENDING.value,
        acl_class=acl_class,
        fingerprint=upload.fingerprint,
        content_sha256=upload.content_sha256,
        size_bytes=upload.size_bytes,
        original_key=upload.original_key,
        media_type=upload.media_type,
        title="",
        uri=upload.uri,
        category=upload.category,
        valid_from=upload.valid_from,
        valid_until=upload.valid_until,
        sensitivity=upload.sensitivity,
        author=upload.author,
        approval=upload.approval,
        **_approved(now, subject, upload),
        risk=to_json(list(upload.risk)),
        high_risk=needs_approval(upload.risk),
        parser_version="",
        splitter_version="",
        chunks_key="",
        created_at=now,
    )


def _approved(now: float, subject: str, upload: NewDocument) -> dict[str, Any]:
    """Whoever says at import that a version is approved has approved it."""
    return {"approved_by": subject, "approved_at": now} if upload.approval == APPROVED else {}
