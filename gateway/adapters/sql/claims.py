"""Claims: a write that carries one happens only while its worker still holds the task."""

from typing import Any

from sqlalchemy import Connection, Row, select

from gateway.adapters.sql.tables import tasks
from gateway.errors import StaleFence
from gateway.ingest.task import TaskClaim, TaskState


def held(connection: Connection, claim: TaskClaim) -> Row[Any]:
    """The task's row, locked until the transaction ends. Raises StaleFence."""
    row = connection.execute(
        select(tasks).where(tasks.c.task_id == claim.task_id).with_for_update()
    ).one_or_none()
    if row is None or row.fence != claim.fence or row.state != TaskState.RUNNING.value:
        raise StaleFence()
    return row
