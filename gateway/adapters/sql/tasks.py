"""Tasks: accept, claim, keep, end. A worker's every write carries its fence (see ``claims``)."""

from typing import Any

from sqlalchemy import Connection, Row, select, update

from gateway.adapters.sql import releases, turns, versions
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import add, fresh_id, known_kb, to_json
from gateway.adapters.sql.tables import outbox, task_steps, tasks
from gateway.errors import IllegalTransition
from gateway.ingest.task import (
    ASKER_REVOKED,
    CANCELLED,
    Ending,
    TaskClaim,
    TaskKind,
    TaskState,
    check_task_transition,
    out_of_attempts,
    out_of_time,
    waited_too_long,
)
from gateway.ingest.uploads import Accepted

_LIVE = frozenset({TaskState.PENDING, TaskState.RUNNING})
ENDED = tuple(state.value for state in TaskState if state not in _LIVE)
#: of the outbox entry of every new task
ACCEPTED_TOPIC = "task.accepted"


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
    add(connection, outbox, topic=ACCEPTED_TOPIC, payload=to_json({"task_id": task_id}), created_at=now)
    return task_id


def set_total(connection: Connection, task_id: str, total: int) -> None:
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(total=total))


def accept_release(
    connection: Connection, now: float, tenant: str, knowledge_base: str, deadline_s: float, subject: str
) -> Accepted:
    kb = known_kb(connection, tenant, knowledge_base)
    planned = fresh_id("rel")
    task_id = add_task(
        connection, now, TaskKind.RELEASE, kb, deadline_s, subject=subject, planned_release_id=planned
    )
    return Accepted(task_id, (), planned)


def claim(
    connection: Connection, now: float, worker: str, lease_s: float, attempts: int, wait_s: float
) -> TaskClaim | None:
    """At most one of a knowledge base runs by the unique index on those that do: needs no isolation."""
    row = turns.next_task(connection, now, attempts, wait_s)
    return None if row is None else _take(connection, now, row, worker, now + lease_s)


def end_the_hopeless(connection: Connection, now: float, attempts: int, wait_s: float) -> None:
    """Tasks without a worker that nobody may claim again: cancelled, of somebody revoked, out of time, out of
    attempts, too old.
    """
    for row in turns.hopeless(connection, now, attempts, wait_s):
        if row.cancel_requested:
            ending = CANCELLED
        elif row.asker_is_gone:
            ending = ASKER_REVOKED
        elif turns.work_left_s(row) <= 0:
            ending = out_of_time(row.trouble)
        elif row.too_old:
            ending = waited_too_long(row.trouble)
        else:
            ending = out_of_attempts(row.attempts, row.stage, row.trouble)
        _end(connection, now, row, ending)


def _take(connection: Connection, now: float, row: Row[Any], worker: str, lease_until: float) -> TaskClaim:
    check_task_transition(TaskState(row.state), TaskState.RUNNING)
    fence = row.fence + 1
    deadline_at = now + turns.work_left_s(row)
    _change(
        connection,
        now,
        row.task_id,
        state=TaskState.RUNNING.value,
        fence=fence,
        attempts=row.attempts + 1,
        worker=worker,
        lease_until=lease_until,
        deadline_at=deadline_at,
        not_before=None,
        claimed_at=now,
    )
    _step(connection, now, row.task_id, fence, "claimed")
    return TaskClaim(
        task_id=row.task_id,
        kind=TaskKind(row.kind),
        tenant=row.tenant,
        kb_id=row.kb_id,
        fence=fence,
        lease_until=lease_until,
        deadline_at=deadline_at,
        activate=row.activate,
        allow_partial=row.allow_partial,
        release_id=row.release_id,
        target=row.target,
        put_offs=row.put_offs,
        trouble=row.trouble,
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
        code = ending.code or state.value.lower()
        releases.abandon(connection, row.task_id, code)
        versions.abandon(connection, row.task_id, code, ending.detail or "its task ended before")


def release_claim(connection: Connection, now: float, held_claim: TaskClaim) -> None:
    _return(connection, now, held(connection, held_claim), "given_back")


def put_off(connection: Connection, now: float, held_claim: TaskClaim, trouble: str, rest_s: float) -> None:
    row = held(connection, held_claim)
    _return(
        connection,
        now,
        row,
        "put_off",
        not_before=now + rest_s,
        trouble=trouble,
        put_offs=row.put_offs + 1,
    )


def _return(connection: Connection, now: float, row: Row[Any], step: str, **values: Any) -> None:
    """To the waiting ones. Whoever said so didn't vanish: the start is no attempt."""
    check_task_transition(TaskState(row.state), TaskState.PENDING)
    _change(
        connection,
        now,
        row.task_id,
        state=TaskState.PENDING.value,
        attempts=row.attempts - 1,
        worker=None,
        lease_until=None,
        **values,
    )
    _step(connection, now, row.task_id, row.fence, step)


def request_cancel(connection: Connection, now: float, tenant: str, task_id: str) -> bool:
    row = connection.execute(
        select(tasks).where(tasks.c.task_id == task_id, tasks.c.tenant == tenant).with_for_update()
    ).one_or_none()
    if row is None or row.state not in _LIVE:
        return False
    if row.state == TaskState.PENDING.value:
        _end(connection, now, row, CANCELLED)
    else:
        _change(connection, now, task_id, cancel_requested=True)
    return True


def _change(connection: Connection, now: float, task_id: str, **values: Any) -> None:
    connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(updated_at=now, **values))


def _step(connection: Connection, now: float, task_id: str, fence: int, stage: str) -> None:
    add(connection, task_steps, task_id=task_id, fence=fence, stage=stage, at=now)
