"""Purging: what nobody asks for any more of keys, ended tasks and sent outbox entries."""

from sqlalchemy import Connection, and_, delete, exists, func, or_, select

from gateway.adapters.sql.tables import (
    document_versions,
    idempotency,
    outbox,
    releases,
    task_documents,
    task_steps,
    tasks,
)
from gateway.adapters.sql.tasks import ACCEPTED_TOPIC, ENDED

_MOST_TASKS = 500
#: nobody sends these: workers look at the tasks themselves
_TOLD_S = 86_400.0


def purge(connection: Connection, now: float, keys_s: float, tasks_s: float) -> int:
    """How many tasks are gone; the most that one call takes when more are left."""
    connection.execute(delete(idempotency).where(idempotency.c.created_at < now - keys_s))
    told = and_(outbox.c.topic == ACCEPTED_TOPIC, outbox.c.created_at < now - _TOLD_S)
    # the newest stays: SQLite would number the next entry anew, and the journal knows them by their numbers
    older = outbox.c.seq < select(func.max(outbox.c.seq)).scalar_subquery()
    connection.execute(delete(outbox).where(older, or_(outbox.c.sent_at < now - tasks_s, told)))
    return _purge_tasks(connection, now - tasks_s)


def _purge_tasks(connection: Connection, before: float) -> int:
    ended = and_(tasks.c.state.in_(ENDED), tasks.c.updated_at < before)
    named = or_(
        exists().where(document_versions.c.task_id == tasks.c.task_id),
        exists().where(releases.c.task_id == tasks.c.task_id),
    )
    wanted = select(tasks.c.task_id).where(ended, ~named).order_by(tasks.c.seq).limit(_MOST_TASKS)
    gone = connection.execute(wanted).scalars().all()
    for table in (task_steps, task_documents, tasks):
        connection.execute(delete(table).where(table.c.task_id.in_(gone)))
    return len(gone)
