"""Tasks: accept, claim, keep, end. A worker's every write carries its fence (see ``claims``)."""

import json
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, or_, select, update

from gateway.adapters.sql import releases, versions
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import add, fresh_id, known_kb, to_json
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    outbox,
    task_documents,
    task_steps,
    tasks,
)
from gateway.errors import IllegalTransition
from gateway.ingest.task import (
    Ending,
    TaskClaim,
    TaskDocument,
    TaskKind,
    TaskRecord,
    TaskState,
    check_task_transition,
)
from gateway.ingest.uploads import Accepted

_LIVE = frozenset({TaskState.PENDING, TaskState.RUNNING})


def add_task(
    connection: Connection,
    now: float,
    kind: TaskKind,
    kb: Row[Any],
    deadline_s: float,
    *,
    subject: str = "",
    activate: bool = False,
    allow_partial: bool = False,
    planned_release_id: str | None = None,
    target: str | None = None,
) -> str:
    """The new task's id; its outbox entry tells workers of it."""
    task_id = fresh_id("task")
    add(
        connection,
        tasks,
        task_id=task_id,
        kind=kind.value,
        tenant=kb.tenant,
        kb_id=kb.kb_id,
        subject=subject,
        state=TaskState.PENDING.value,
        stage="accepted",
        done=0,
        total=0,
        activate=activate,
        allow_partial=allow_partial,
        cancel_requested=False,
        attempts=0,
        fence=0,
        deadline_at=now + deadline_s,
        planned_release_id=planned_release_id,
        target=target,
        created_at=now,
        updated_at=now,
    )
    add(connection, outbox, topic="task.accepted", payload=to_json({"task_id": task_id}), created_at=now)
    return task_id


def set_total(connection: Connection, task_id: str, total: int) -> None:
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(total=total))


def accept_release(
    connection: Connection, now: float, tenant: str, knowledge_base: str, deadline_s: float
) -> Accepted:
    kb = known_kb(connection, tenant, knowledge_base)
    planned = fresh_id("rel")
    task_id = add_task(connection, now, TaskKind.RELEASE, kb, deadline_s, planned_release_id=planned)
    return Accepted(task_id, (), planned)


def claim(connection: Connection, now: float, worker: str, lease_s: float, attempts: int) -> TaskClaim | None:
    free = or_(
        tasks.c.state == TaskState.PENDING.value,
        and_(tasks.c.state == TaskState.RUNNING.value, tasks.c.lease_until <= now),
    )
    _end_the_hopeless(connection, now, free, attempts)
    other = tasks.alias("other")
    busy = exists(
        select(other.c.seq).where(
            other.c.kb_id == tasks.c.kb_id,
            other.c.state == TaskState.RUNNING.value,
            other.c.seq != tasks.c.seq,
        )
    )
    row = connection.execute(
        select(tasks).where(free, ~busy).order_by(tasks.c.seq).limit(1).with_for_update(skip_locked=True)
    ).one_or_none()
    return None if row is None else _take(connection, now, row, worker, now + lease_s)


def _end_the_hopeless(connection: Connection, now: float, free: Any, attempts: int) -> None:
    """Free tasks that nobody may claim again: cancelled, out of time, out of attempts."""
    hopeless = or_(
        tasks.c.cancel_requested.is_(True), tasks.c.deadline_at <= now, tasks.c.attempts >= attempts
    )
    rows = connection.execute(
        select(tasks).where(free, hopeless).order_by(tasks.c.seq).with_for_update(skip_locked=True)
    ).all()
    for row in rows:
        if row.cancel_requested:
            ending = Ending(TaskState.CANCELLED)
        elif row.deadline_at <= now:
            ending = Ending(TaskState.FAILED, "deadline_exceeded", "the task ran out of time")
        else:
            tried = f"the task was tried {row.attempts} times"
            ending = Ending(TaskState.FAILED, "attempts_exhausted", tried)
        _end(connection, now, row, ending)


def _take(connection: Connection, now: float, row: Row[Any], worker: str, lease_until: float) -> TaskClaim:
    check_task_transition(TaskState(row.state), TaskState.RUNNING)
    fence = row.fence + 1
    _change(
        connection,
        now,
        row.task_id,
        state=TaskState.RUNNING.value,
        fence=fence,
        attempts=row.attempts + 1,
        worker=worker,
        lease_until=lease_until,
    )
    _step(connection, now, row.task_id, fence, "claimed")
    return TaskClaim(
        task_id=row.task_id,
        kind=TaskKind(row.kind),
        tenant=row.tenant,
        kb_id=row.kb_id,
        fence=fence,
        lease_until=lease_until,
        deadline_at=row.deadline_at,
        activate=row.activate,
        allow_partial=row.allow_partial,
        release_id=row.release_id,
        target=row.target,
    )


def heartbeat(connection: Connection, now: float, held_claim: TaskClaim, lease_s: float) -> bool:
    row = held(connection, held_claim)
    connection.execute(update(tasks).where(tasks.c.task_id == row.task_id).values(lease_until=now + lease_s))
    return bool(row.cancel_requested)


def progress(
    connection: Connection, now: float, held_claim: TaskClaim, stage: str, done: int, total: int
) -> None:
    row = held(connection, held_claim)
    _change(connection, now, row.task_id, stage=stage, done=done, total=total)
    if stage != row.stage:
        _step(connection, now, row.task_id, row.fence, stage)


def finish(connection: Connection, now: float, held_claim: TaskClaim, ending: Ending) -> None:
    _end(connection, now, held(connection, held_claim), ending)


def _end(connection: Connection, now: float, row: Row[Any], ending: Ending) -> None:
    state = ending.state
    if state in _LIVE:
        raise IllegalTransition(f"{state} is no end of a task")
    check_task_transition(TaskState(row.state), state)
    _change(
        connection,
        now,
        row.task_id,
        state=state.value,
        error_code=ending.code,
        error_detail=ending.detail,
        report=None if ending.report is None else to_json(dict(ending.report)),
        worker=None,
        lease_until=None,
    )
    _step(connection, now, row.task_id, row.fence, state.value)
    if state is not TaskState.SUCCEEDED:
        releases.abandon(connection, row.task_id, ending.code or state.value.lower())


def release_claim(connection: Connection, now: float, held_claim: TaskClaim) -> None:
    row = held(connection, held_claim)
    check_task_transition(TaskState(row.state), TaskState.PENDING)
    _change(
        connection,
        now,
        row.task_id,
        state=TaskState.PENDING.value,
        attempts=row.attempts - 1,
        worker=None,
        lease_until=None,
    )
    _step(connection, now, row.task_id, row.fence, "given_back")


def request_cancel(connection: Connection, now: float, tenant: str, task_id: str) -> bool:
    row = connection.execute(
        select(tasks).where(tasks.c.task_id == task_id, tasks.c.tenant == tenant).with_for_update()
    ).one_or_none()
    if row is None or row.state not in _LIVE:
        return False
    if row.state == TaskState.PENDING.value:
        _end(connection, now, row, Ending(TaskState.CANCELLED))
    else:
        _change(connection, now, task_id, cancel_requested=True)
    return True


def _change(connection: Connection, now: float, task_id: str, **values: Any) -> None:
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(updated_at=now, **values))


def _step(connection: Connection, now: float, task_id: str, fence: int, stage: str) -> None:
    add(connection, task_steps, task_id=task_id, fence=fence, stage=stage, at=now)


def record(connection: Connection, tenant: str, task_id: str) -> TaskRecord | None:
    row = connection.execute(
        select(tasks).where(tasks.c.task_id == task_id, tasks.c.tenant == tenant)
    ).one_or_none()
    if row is None:
        return None
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
        documents=_task_documents(connection, task_id),
        release_id=row.release_id or row.planned_release_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
        target=row.target,
        report=None if row.report is None else json.loads(row.report),
    )


def _task_documents(connection: Connection, task_id: str) -> tuple[TaskDocument, ...]:
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
