"""Purging: what nobody asks for any more of keys, ended tasks and sent outbox entries."""

from sqlalchemy import Connection, and_, delete, exists, func, or_, select, tuple_

from gateway.adapters.sql.database import Database
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
_MOST_ROWS = 2000
#: nobody sends these: workers look at the tasks themselves
_TOLD_S = 86_400.0


async def purge(database: Database, keys_s: float, tasks_s: float) -> int:
    """How many tasks are gone; the most that one call takes when more are left. Never much at once."""
    while await database.write(lambda c, now: _purge_keys(c, now - keys_s)):
        pass
    while await database.write(lambda c, now: _purge_outbox(c, now, tasks_s)):
        pass
    return await database.write(lambda c, now: _purge_tasks(c, now - tasks_s))


def _purge_keys(connection: Connection, before: float) -> bool:
    """Whether it may have left some."""
    old = select(*idempotency.primary_key).where(idempotency.c.created_at < before).limit(_MOST_ROWS)
    gone = delete(idempotency).where(tuple_(*idempotency.primary_key).in_(old))
    return connection.execute(gone).rowcount == _MOST_ROWS


def _purge_outbox(connection: Connection, now: float, tasks_s: float) -> bool:
    told = and_(outbox.c.topic == ACCEPTED_TOPIC, outbox.c.created_at < now - _TOLD_S)
    # the newest stays: SQLite would number the next entry anew, and the journal knows them by their numbers
    older = outbox.c.seq < select(func.max(outbox.c.seq)).scalar_subquery()
    old = select(outbox.c.seq).where(older, or_(outbox.c.sent_at < now - tasks_s, told)).limit(_MOST_ROWS)
    return connection.execute(delete(outbox).where(outbox.c.seq.in_(old))).rowcount == _MOST_ROWS


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
