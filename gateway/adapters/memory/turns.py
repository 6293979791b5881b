"""Turns in the in-memory catalog: which of the waiting tasks a worker gets."""

from collections import Counter
from collections.abc import Sequence

from gateway.adapters.memory.catalog_rows import TaskRow
from gateway.ingest.task import TASK_RANKS, TaskState


def is_unowned(task: TaskRow, now: float) -> bool:
    """Whether no worker has a right to it; a resting one is nobody's too."""
    return task.state is TaskState.PENDING or _has_lapsed(task, now)


def work_left_s(task: TaskRow) -> float:
    """Of a task that no worker has a right to: no time counts since its worker stopped, or since it came. A
    waiting task's ``updated_at`` is that moment.
    """
    return task.deadline_at - (task.updated_at if task.state is TaskState.PENDING else task.lease_until)


def next_task(rows: Sequence[TaskRow], now: float) -> TaskRow | None:
    """``rows`` in order of arrival."""
    running = [task for task in rows if task.state is TaskState.RUNNING]
    busy = {task.kb_id for task in running}
    places = Counter(task.tenant for task in running if not _has_lapsed(task, now))
    served: dict[str, float] = {}
    for task in rows:
        served[task.tenant] = max(served.get(task.tenant, 0.0), task.claimed_at)
    claimable = [task for task in rows if _is_claimable(task, now, busy)]
    arrived: dict[str, int] = {}
    for place, task in enumerate(claimable):
        arrived.setdefault(task.tenant, place)

    def turn(task: TaskRow) -> tuple[float, ...]:
        tenant = task.tenant
        return places[tenant], served[tenant], arrived[tenant], TASK_RANKS[task.kind]

    return min(claimable, key=turn, default=None)


def _is_claimable(task: TaskRow, now: float, busy: set[str]) -> bool:
    if task.state is not TaskState.PENDING:
        return _has_lapsed(task, now)
    return task.kb_id not in busy and (task.not_before is None or task.not_before <= now)


def _has_lapsed(task: TaskRow, now: float) -> bool:
    return task.state is TaskState.RUNNING and task.lease_until <= now
