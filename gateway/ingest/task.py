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


#: which of a tenant's waiting tasks go first; equals go in order of arrival. What narrows or removes is short
#: and doesn't wait behind imports; a release comes after the imports that were sent before it.
TASK_RANKS: Mapping[TaskKind, int] = {
    TaskKind.MOVE: 0,
    TaskKind.CLEANUP: 0,
    TaskKind.IMPORT: 1,
    TaskKind.RELEASE: 1,
    TaskKind.RECLAIM: 2,
}


#: what somebody has asked for and may call off again. The others follow from an act or from the time: whoever
#: may import doesn't undo half of a revocation.
CANCELLABLE = frozenset({TaskKind.IMPORT, TaskKind.RELEASE})


class TaskState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: RUNNING -> RUNNING is a takeover: a new claim after the lease ran out, with a higher fence.
#: RUNNING -> PENDING: given back by a worker that stops, or put off after passing trouble.
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
    ``deadline_at``: when its working time is used up, which all its claims share and no waiting counts for.
    ``put_offs``: how often it was put off, ``trouble``: the code of what it met last.
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
    put_offs: int = 0
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a task ends. ``report`` is JSON for its owner, such as what a clean-up left behind."""

    state: TaskState
    code: str | None = None
    detail: str | None = None
    report: Mapping[str, object] | None = None


CANCELLED = Ending(TaskState.CANCELLED, "cancelled", "cancelled by its owner")


ASKER_REVOKED = Ending(TaskState.FAILED, "principal_revoked", "who sent it was revoked")


#: how long after it was accepted a task that nobody is at is given up
WAIT_S = 7 * 86_400.0
#: a waiting task this old isn't joined by new requests: it might be given up before its turn
JOIN_S = 43_200.0


def waited_too_long(trouble: str | None) -> Ending:
    """The end of a task that nobody came to, or whose trouble didn't pass."""
    return Ending(TaskState.FAILED, "waited_too_long", "it was accepted too long ago" + _last(trouble))


def out_of_time(trouble: str | None) -> Ending:
    """The end of a task whose working time is used up."""
    return Ending(TaskState.FAILED, "deadline_exceeded", "the task ran out of time" + _last(trouble))


def out_of_attempts(attempts: int, stage: str, trouble: str | None) -> Ending:
    """The end of a task whose workers vanish: their process crashed, or couldn't keep its lease."""
    told = f"it was begun {attempts} times, and each time its worker went away without a word"
    return Ending(TaskState.FAILED, "attempts_exhausted", f"{told}; last stage: {stage}{_last(trouble)}")


def _last(trouble: str | None) -> str:
    return "" if trouble is None else f"; last trouble: {trouble}"


def back_off_s(put_offs: int, first_s: float, most_s: float, chance: float) -> float:
    """How long a task rests that was put off ``put_offs`` times before.

    Doubling, then between half and all of that by ``chance`` (0 to 1): what met the same trouble doesn't
    come back at the same moment ("equal jitter": M. Brooker, Exponential Backoff And Jitter, 2015).
    """
    return min(most_s, first_s * 2.0 ** min(put_offs, 30)) * (0.5 + chance / 2)


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
    """A task as its owner sees it. Times are seconds since the epoch.

    ``retry_at`` and ``trouble`` are those of a task that rests after passing trouble, else None.
    """

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
    knowledge_base: str = ""
    retry_at: float | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Which of a tenant's tasks to list. ``before`` is the id of a task: only older ones follow."""

    limit: int
    knowledge_base: str | None = None
    state: TaskState | None = None
    kind: TaskKind | None = None
    before: str | None = None
