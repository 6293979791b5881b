"""Turns: which of the waiting tasks a worker gets. Whoever waits longest behind the fewest comes first."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Double, Integer, Row, and_, bindparam, case, cast, func, or_, select

from gateway.adapters.sql import askers
from gateway.adapters.sql.server import is_postgres
from gateway.adapters.sql.tables import meta, tasks
from gateway.ingest.task import TASK_RANKS, TaskState

_RANK = case({kind.value: rank for kind, rank in TASK_RANKS.items()}, value=tasks.c.kind)
#: held until the transaction ends; the number is any that nothing else locks in this database
_ALONE = select(func.pg_advisory_xact_lock(7_421_017))
#: of the entry in ``meta``: when an operator confirmed what a backup brought back
RESTORED_AT = "restored_at"
_RESTORED_AT = select(cast(meta.c.value, Double)).where(meta.c.key == RESTORED_AT).scalar_subquery()
_PENDING = tasks.c.state == TaskState.PENDING.value
_RUNNING = tasks.c.state == TaskState.RUNNING.value
_STOPPED_AT = case((_PENDING, tasks.c.updated_at), else_=tasks.c.lease_until)

# An idle worker asks every second: the statements are made once, for making them costs more than asking.
_NOW = bindparam("now", type_=Double)
_SINCE = bindparam("since", type_=Double)  # what came before it has waited too long
_ATTEMPTS = bindparam("most_attempts", type_=Integer)

#: waiting counts from a restore on: until then nobody could do what the backup holds
_TOO_OLD = and_(tasks.c.created_at <= _SINCE, func.coalesce(_RESTORED_AT, 0.0) <= _SINCE)
_HOPELESS = or_(
    tasks.c.cancel_requested.is_(True),
    tasks.c.deadline_at <= _STOPPED_AT,
    _TOO_OLD,
    tasks.c.attempts >= _ATTEMPTS,
    askers.is_gone,
)
_UNOWNED = or_(_PENDING, and_(_RUNNING, tasks.c.lease_until <= _NOW))
_LOST = (
    select(tasks, askers.is_gone.label("asker_is_gone"), _TOO_OLD.label("too_old"))
    .where(_UNOWNED, _HOPELESS)
    .order_by(tasks.c.seq)
    .with_for_update(skip_locked=True)
)

_running = tasks.alias("running")
_BUSY = select(_running.c.kb_id).where(_running.c.state == TaskState.RUNNING.value)
_RESTED = or_(tasks.c.not_before.is_(None), tasks.c.not_before <= _NOW)
#: one task runs at a time in a knowledge base, one whose lease ran out included
_CLAIMABLE = and_(
    or_(
        and_(_RUNNING, tasks.c.lease_until <= _NOW),
        and_(_PENDING, _RESTED, tasks.c.kb_id.not_in(_BUSY)),
    ),
    ~_HOPELESS,
)
_waiting = (
    select(tasks.c.tenant, func.min(tasks.c.seq).label("oldest"))
    .where(_CLAIMABLE)
    .group_by(tasks.c.tenant)
    .subquery()
)
_at_work = (
    select(tasks.c.tenant, func.count().label("places"))
    .where(_RUNNING, tasks.c.lease_until > _NOW)
    .group_by(tasks.c.tenant)
    .subquery()
)
_served = select(func.max(tasks.c.claimed_at)).where(tasks.c.tenant == _waiting.c.tenant).scalar_subquery()
#: the tenants with a claimable task, in the order of their turns
_TENANTS = (
    select(_waiting.c.tenant)
    .outerjoin(_at_work, _at_work.c.tenant == _waiting.c.tenant)
    .order_by(func.coalesce(_at_work.c.places, 0), func.coalesce(_served, 0), _waiting.c.oldest)
)
_NEXT = (
    select(tasks)
    .where(tasks.c.tenant == bindparam("of_tenant"), _CLAIMABLE)
    .order_by(_RANK, tasks.c.seq)
    .limit(1)
    .with_for_update(skip_locked=True)
)


def work_left_s(row: Row[Any]) -> float:
    """Of a task that no worker has a right to: no time counts since its worker stopped, or since it came. A
    waiting task's ``updated_at`` is that moment.
    """
    stopped_at = row.updated_at if row.state == TaskState.PENDING.value else row.lease_until
    return float(row.deadline_at - stopped_at)


def hopeless(connection: Connection, now: float, attempts: int, wait_s: float) -> Sequence[Row[Any]]:
    """Tasks without a worker that nobody may claim again: cancelled, of somebody revoked (``asker_is_gone``),
    out of time, out of attempts, ``too_old``. Locked until the transaction ends.
    """
    return connection.execute(_LOST, _times(now, attempts, wait_s)).all()


def next_task(connection: Connection, now: float, attempts: int, wait_s: float) -> Row[Any] | None:
    """Locked until the transaction ends; those that another worker is just taking are passed over."""
    if is_postgres(connection):  # one claim after the other, so that each sees whose turn the last one was
        connection.execute(_ALONE)
    times = _times(now, attempts, wait_s)
    for tenant in connection.execute(_TENANTS, times).scalars().all():
        row = connection.execute(_NEXT, {**times, "of_tenant": tenant}).one_or_none()
        if row is not None:
            return row
    return None


def _times(now: float, attempts: int, wait_s: float) -> dict[str, float | int]:
    return {"now": now, "since": now - wait_s, "most_attempts": attempts}
