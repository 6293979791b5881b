"""Tasks: long work with a lease, a fence, a deadline and a bounded number of attempts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.errors import IllegalTransition


class TaskKind(StrEnum):
    """``target`` of a task's claim: the document a MOVE or CLEANUP is about; none for the others."""

    IMPORT = "import"
    RELEASE = "release"
    MOVE = "move"  # rewrites ACL classes in the stored revisions
    CLEANUP = "cleanup"  # what is left of a deleted or revoked document
    RECLAIM = "reclaim"  # revisions and objects that nothing needs any more


class TaskState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: RUNNING -> RUNNING is a takeover: a new claim after the lease ran out, with a higher fence
TASK_TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: frozenset({TaskState.RUNNING, TaskState.CANCELLED, TaskState.FAILED}),
    TaskState.RUNNING: frozenset(
        {
            TaskState.RUNNING,
            TaskState.PENDING,
            TaskState.SUCCEEDED,
            TaskState.FAILED,
            TaskState.CANCELLED,
        }
    ),
    TaskState.SUCCEEDED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELLED: frozenset(),
}


def check_task_transition(before: TaskState, after: TaskState) -> None:
    """Raises IllegalTransition unless the table allows it."""
    if after not in TASK_TRANSITIONS[before]:
        raise IllegalTransition(f"a task can't go from {before} to {after}")


@dataclass(frozen=True, slots=True)
class TaskClaim:
    """A worker's right to a task until ``lease_until`` (seconds since the epoch, database clock).

    ``fence`` rises with every claim; each write carries it, and a stale one raises StaleFence.
    """

    task_id: str
    kind: TaskKind
    tenant: str
    kb_id: str
    fence: int
    lease_until: float
    deadline_at: float
    activate: bool
    allow_partial: bool
    release_id: str | None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a task ends. ``report`` is JSON for its owner, such as what a clean-up left behind."""

    state: TaskState
    code: str | None = None
    detail: str | None = None
    report: Mapping[str, object] | None = None


class TaskWork(Protocol):
    """Does the tasks of one kind."""

    async def run(self, claim: TaskClaim) -> Ending:
        """Raises StaleFence, any error that passes (the task is tried again), or one that ends it."""
        ...


@dataclass(frozen=True, slots=True)
class TaskDocument:
    """One document version inside an import task. ``error`` is for a person."""

    document_id: str
    document_version: int
    source: str
    state: str
    error: str | None


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as its owner sees it. Times are seconds since the epoch."""

    task_id: str
    kind: TaskKind
    tenant: str
    state: TaskState
    stage: str
    done: int
    total: int
    error_code: str | None
    error_detail: str | None
    documents: tuple[TaskDocument, ...]
    release_id: str | None
    created_at: float
    updated_at: float
    target: str | None = None
    report: Mapping[str, object] | None = None
