"""Turns: which of the waiting tasks a worker gets. Whoever waits longest behind the fewest comes first."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Double, Row, and_, case, cast, func, or_, select

from gateway.adapters.sql import askers
from gateway.adapters.sql.server import is_postgres
from gateway.adapters.sql.tables import meta, tasks
from gateway.ingest.task import TASK_RANKS, WAIT_S, TaskState

_RANK = case({kind.value: rank for kind, rank in TASK_RANKS.items()}, value=tasks.c.kind)
#: held until the transaction ends; the number is any that nothing else locks in this database
_ALONE = select(func.pg_advisory_xact_lock(7_421_017))
#: of the entry in ``meta``: when an operator confirmed what a backup brought back
RESTORED_AT = "restored_at"
_RESTORED_AT = select(cast(meta.c.value, Double)).where(meta.c.key == RESTORED_AT).scalar_subquery()
_PENDING = tasks.c.state == TaskState.PENDING.value
_RUNNING = tasks.c.state == TaskState.RUNNING.value
_STOPPED_AT = case((_PENDING, tasks.c.updated_at), else_=tasks.c.lease_until)


def work_left_s(row: Row[Any]) -> float:
    """Of a task that no worker has a right to: no time counts since its worker stopped, or since it came. A
    waiting task's ``updated_at`` is that moment.
    """
    stopped_at = row.updated_at if row.state == TaskState.PENDING.value else row.lease_until
    return float(row.deadline_at - stopped_at)


def unowned(now: float) -> ColumnElement[bool]:
    """Tasks that no worker has a right to, resting ones too."""
    return or_(_PENDING, and_(_RUNNING, tasks.c.lease_until <= now))


def hopeless(now: float, attempts: int, wait_s: float = WAIT_S) -> ColumnElement[bool]:
    """Tasks without a worker that nobody may claim again: cancelled, of somebody revoked, out of time, out of
    attempts, too old.
    """
    return or_(
        tasks.c.cancel_requested.is_(True),
        tasks.c.deadline_at <= _STOPPED_AT,
        too_old(now, wait_s),
        tasks.c.attempts >= attempts,
        askers.is_gone,
    )


def too_old(now: float, wait_s: float) -> ColumnElement[bool]:
    """Waiting counts from a restore on: until then nobody could do what the backup holds."""
    since = now - wait_s
    return and_(tasks.c.created_at <= since, func.coalesce(_RESTORED_AT, 0.0) <= since)


def next_task(connection: Connection, now: float, attempts: int, wait_s: float) -> Row[Any] | None:
    """Locked until the transaction ends; those that another worker is just taking are passed over."""
    if is_postgres(connection):  # one claim after the other, so that each sees whose turn the last one was
        connection.execute(_ALONE)
    claimable = and_(_claimable(now), ~hopeless(now, attempts, wait_s))
    for tenant in _tenants(connection, now, claimable):
        row = connection.execute(
            select(tasks)
            .where(tasks.c.tenant == tenant, claimable)
            .order_by(_RANK, tasks.c.seq)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).one_or_none()
        if row is not None:
            return row
    return None


def _claimable(now: float) -> ColumnElement[bool]:
    """One task runs at a time in a knowledge base, one whose lease ran out included."""
    running = tasks.alias("running")
    busy = select(running.c.kb_id).where(running.c.state == TaskState.RUNNING.value)
    rested = or_(tasks.c.not_before.is_(None), tasks.c.not_before <= now)
    return or_(
        and_(_RUNNING, tasks.c.lease_until <= now),
        and_(_PENDING, rested, tasks.c.kb_id.not_in(busy)),
    )


def _tenants(connection: Connection, now: float, claimable: ColumnElement[bool]) -> Iterator[str]:
    """Those with a claimable task, in the order of their turns."""
    waiting = (
        select(tasks.c.tenant, func.min(tasks.c.seq).label("oldest"))
        .where(claimable)
        .group_by(tasks.c.tenant)
        .subquery()
    )
    at_work = (
        select(tasks.c.tenant, func.count().label("places"))
        .where(_RUNNING, tasks.c.lease_until > now)
        .group_by(tasks.c.tenant)
        .subquery()
    )
    served = select(func.max(tasks.c.claimed_at)).where(tasks.c.tenant == waiting.c.tenant).scalar_subquery()
    turns = (
        select(waiting.c.tenant)
        .outerjoin(at_work, at_work.c.tenant == waiting.c.tenant)
        .order_by(func.coalesce(at_work.c.places, 0), func.coalesce(served, 0), waiting.c.oldest)
    )
    return iter(connection.execute(turns).scalars().all())
