"""Tasks as their owners see them: one with its documents, or a page of many."""

import json
from typing import Any

from sqlalchemy import Connection, Row, and_, select

from gateway.adapters.sql import versions
from gateway.adapters.sql.tables import document_versions, documents, knowledge_bases, task_documents, tasks
from gateway.errors import InvalidField
from gateway.ingest.task import TaskDocument, TaskKind, TaskQuery, TaskRecord, TaskState

_RECORDS = select(tasks, knowledge_bases.c.name.label("knowledge_base")).join(
    knowledge_bases, knowledge_bases.c.kb_id == tasks.c.kb_id
)


def one(connection: Connection, tenant: str, task_id: str) -> TaskRecord | None:
    row = connection.execute(
        _RECORDS.where(tasks.c.task_id == task_id, tasks.c.tenant == tenant)
    ).one_or_none()
    return None if row is None else _record(row, _documents(connection, task_id))


def listed(connection: Connection, tenant: str, query: TaskQuery) -> list[TaskRecord]:
    wanted = _RECORDS.where(tasks.c.tenant == tenant)
    if query.before is not None:
        wanted = wanted.where(tasks.c.seq < _place(connection, tenant, query.before))
    if query.knowledge_base is not None:
        wanted = wanted.where(knowledge_bases.c.name == query.knowledge_base)
    if query.state is not None:
        wanted = wanted.where(tasks.c.state == query.state.value)
    if query.kind is not None:
        wanted = wanted.where(tasks.c.kind == query.kind.value)
    rows = connection.execute(wanted.order_by(tasks.c.seq.desc()).limit(query.limit))
    return [_record(row, ()) for row in rows]


def _place(connection: Connection, tenant: str, task_id: str) -> int:
    known = select(tasks.c.seq).where(tasks.c.task_id == task_id, tasks.c.tenant == tenant)
    place = connection.execute(known).scalar_one_or_none()
    if place is None:
        raise InvalidField("before is the id of a task")
    return int(place)


def _record(row: Row[Any], documents: tuple[TaskDocument, ...]) -> TaskRecord:
    rests = row.state == TaskState.PENDING.value and row.not_before is not None
    return TaskRecord(
        task_id=row.task_id,
        kind=TaskKind(row.kind),
        tenant=row.tenant,
        state=TaskState(row.state),
        stage=row.stage,
        done=row.done,
        total=row.total,
        error_code=row.error_code,
        error_detail=row.error_detail,
        documents=documents,
        release_id=row.release_id or row.planned_release_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
        target=row.target,
        report=None if row.report is None else json.loads(row.report),
        knowledge_base=row.knowledge_base,
        retry_at=row.not_before if rests else None,
        trouble=row.trouble if rests else None,
    )


def _documents(connection: Connection, task_id: str) -> tuple[TaskDocument, ...]:
    rows = connection.execute(
        select(document_versions, documents.c.source)
        .join(
            task_documents,
            and_(
                task_documents.c.document_id == document_versions.c.document_id,
                task_documents.c.version == document_versions.c.version,
            ),
        )
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(task_documents.c.task_id == task_id)
        .order_by(task_documents.c.position)
    )
    return tuple(
        TaskDocument(row.document_id, row.version, row.source, row.state, versions.error_of(row))
        for row in rows
    )
