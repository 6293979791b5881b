"""Accepting an upload: versions, task and outbox, in one transaction with its act."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import MAX_PERMITTED_CLASSES
from gateway.adapters.sql import access, arrivals, classes, references, tasks
from gateway.adapters.sql.rows import made_kb
from gateway.adapters.sql.tables import task_documents
from gateway.errors import Conflict
from gateway.ingest.task import TaskKind
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument


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
    refs: list[DocumentRef] = []
    permissions_changed = False
    for uploads in _groups(kb, request.documents):
        arrived, changed = arrivals.arrive(
            connection,
            now,
            kb,
            task_id,
            uploads,
            subject=request.subject,
            deadline_s=request.deadline_s,
        )
        permissions_changed |= changed
        refs += arrived
    if permissions_changed:
        classes.bump_revision(connection, kb.kb_id)
    _name_documents(connection, task_id, refs)
    return tuple(
        AcceptedDocument(ref.document_id, ref.document_version, upload.source)
        for ref, upload in zip(refs, request.documents, strict=True)
    )


def _groups(kb: Row[Any], uploads: Sequence[NewDocument]) -> Iterator[Sequence[NewDocument]]:
    """In order, no source twice in one: who comes later finds what became of the one before. One by one where
    there may soon be no room for another class, which depends on who came before.
    """
    most = len(uploads) if kb.next_class + len(uploads) <= MAX_PERMITTED_CLASSES else 1
    group: list[NewDocument] = []
    sources: set[str] = set()
    for upload in uploads:
        if len(group) == most or upload.source in sources:
            yield group
            group, sources = [], set()
        group.append(upload)
        sources.add(upload.source)
    yield group


def _name_documents(connection: Connection, task_id: str, refs: Sequence[DocumentRef]) -> None:
    rows = [
        {
            "task_id": task_id,
            "position": position,
            "document_id": ref.document_id,
            "version": ref.document_version,
        }
        for position, ref in enumerate(dict.fromkeys(refs))
    ]
    if rows:
        connection.execute(insert(task_documents), rows)
    tasks.set_total(connection, task_id, len(rows))
