"""Accepting an upload: versions, task, outbox and idempotency record, in one transaction."""

import json
from typing import Any

from sqlalchemy import Connection, Row, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import access, classes, tasks
from gateway.adapters.sql.rows import acl_texts, add, made_kb, to_json
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    idempotency,
    task_documents,
)
from gateway.errors import Conflict, IdempotencyMismatch
from gateway.ingest.task import TaskKind
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument
from gateway.release.model import VersionState
from gateway.retrieval.chunk import stable_hash


def accept(connection: Connection, now: float, request: ImportRequest) -> Accepted:
    answered = _answered(connection, request)
    if answered is not None:
        return answered
    if request.knowledge_base in access.in_force(connection, request.tenant).knowledge_bases:
        raise Conflict("this knowledge base is revoked")
    kb = made_kb(connection, request.tenant, request.knowledge_base, now)
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
    accepted = Accepted(task_id, _accept_documents(connection, now, kb, task_id, request.documents))
    _remember(connection, now, request, accepted)
    return accepted


def _answered(connection: Connection, request: ImportRequest) -> Accepted | None:
    if request.idempotency_key is None:
        return None
    known = connection.execute(
        select(idempotency.c.request_hash, idempotency.c.answer).where(
            idempotency.c.tenant == request.tenant,
            idempotency.c.subject == request.subject,
            idempotency.c.key == request.idempotency_key,
        )
    ).one_or_none()
    if known is None:
        return None
    if known.request_hash != request.request_hash:
        raise IdempotencyMismatch()
    answer = json.loads(known.answer)
    return Accepted(answer["task_id"], tuple(AcceptedDocument(*parts) for parts in answer["documents"]))


def _remember(connection: Connection, now: float, request: ImportRequest, accepted: Accepted) -> None:
    if request.idempotency_key is None:
        return
    parts = [[d.document_id, d.document_version, d.source] for d in accepted.documents]
    add(
        connection,
        idempotency,
        tenant=request.tenant,
        subject=request.subject,
        key=request.idempotency_key,
        request_hash=request.request_hash,
        answer=to_json({"task_id": accepted.task_id, "documents": parts}),
        created_at=now,
    )


def _accept_documents(
    connection: Connection, now: float, kb: Row[Any], task_id: str, uploads: tuple[NewDocument, ...]
) -> tuple[AcceptedDocument, ...]:
    accepted = []
    permissions_changed = False
    for upload in uploads:
        acl_class = classes.number_of(connection, kb.kb_id, upload.acl)
        ref, changed = _accept_document(connection, now, kb, task_id, upload, acl_class)
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
    connection: Connection, now: float, kb: Row[Any], task_id: str, upload: NewDocument, acl_class: int
) -> tuple[DocumentRef, bool]:
    """The version that stands for the upload, and whether it changed who may see what."""
    document_id = "doc_" + stable_hash(kb.tenant, kb.kb_id, upload.source)
    known = connection.execute(select(documents).where(documents.c.document_id == document_id)).one_or_none()
    fingerprint = _fingerprint(upload)
    changed = _changes_permissions(connection, kb, known, acl_class)
    if known is not None and known.deleted_at is None:
        standing = _standing_version(connection, document_id)
        if standing is not None and standing.fingerprint == fingerprint:
            _set_current(connection, document_id, acl_class, known.newest_version)
            return DocumentRef(document_id, standing.version), changed
    version = 1 if known is None else known.newest_version + 1
    if known is None:
        _add_document(connection, now, kb, document_id, upload.source, acl_class)
    else:
        _set_current(connection, document_id, acl_class, version)
    ref = DocumentRef(document_id, version)
    _add_version(connection, now, task_id, ref, upload, acl_class, fingerprint)
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
    fingerprint: str,
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
        fingerprint=fingerprint,
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
        risk=to_json(list(upload.risk)),
        parser_version="",
        splitter_version="",
        chunks_key="",
        created_at=now,
    )


def _fingerprint(upload: NewDocument) -> str:
    """Everything about an upload but the place of its bytes: their hash already names them."""
    parts = [
        upload.content_sha256,
        upload.media_type,
        upload.uri,
        upload.category,
        upload.valid_from,
        upload.valid_until,
        upload.sensitivity,
        upload.author,
        upload.approval,
        list(upload.risk),
        acl_texts(upload.acl),
    ]
    return stable_hash(to_json(parts))
