"""Claims: a write that carries one happens only while its worker still holds the task."""

from typing import Any

from sqlalchemy import Connection, Row, Select, select

from gateway.adapters.sql.tables import tasks
from gateway.errors import StaleFence
from gateway.ingest.task import TaskClaim, TaskState


def held(connection: Connection, claim: TaskClaim) -> Row[Any]:
    """The task's row, locked until the transaction ends. Raises StaleFence."""
    return _checked(connection.execute(_task(claim).with_for_update()).one_or_none(), claim)


def still_held(connection: Connection, claim: TaskClaim) -> None:
    """For reads, which lock nothing. Raises StaleFence."""
    _checked(connection.execute(_task(claim)).one_or_none(), claim)


def _task(claim: TaskClaim) -> Select[Any]:
    return select(tasks).where(tasks.c.task_id == claim.task_id)


def _checked(row: Row[Any] | None, claim: TaskClaim) -> Row[Any]:
    if row is None or row.fence != claim.fence or row.state != TaskState.RUNNING.value:
        raise StaleFence()
    return row
