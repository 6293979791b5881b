"""The ports to who may see a document and who has approved it, and to the moves that follow.

Each method is one transaction; every one raises CatalogUnavailable when the catalog can't answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.access.classes import Acl
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.task import TaskClaim


@dataclass(frozen=True, slots=True)
class AclChange:
    """Somebody's word on who may see a document from now on. ``deadline_s`` is that of the move."""

    tenant: str
    document_id: str
    acl: Acl
    subject: str
    deadline_s: float


@dataclass(frozen=True, slots=True)
class ChangedAcl:
    """``task_id`` names the task that moves stored rows; None when none has to."""

    document_id: str
    acl: Acl
    narrowed: bool
    task_id: str | None


class Decision(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person says of one version after looking at it. ``note`` is for those who ask why."""

    tenant: str
    document_id: str
    document_version: int
    decision: Decision
    subject: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """A version's approval as it stands; ``approved_at`` is in seconds since the epoch."""

    document_id: str
    document_version: int
    approval: str
    approved_by: str
    approved_at: float
    note: str
    risk: tuple[str, ...]


class Governance(Protocol):
    async def set_acl(self, change: AclChange) -> ChangedAcl:
        """The document's current ACL, at once: what a version's own ACL forbids stays forbidden.

        A narrowing raises the tenant's epoch and stands in the journal; the knowledge base's ACL revision
        rises with any change. The same ACL again changes nothing, but rows that lie wrong are moved. Raises
        NotFound for a document that is missing, deleted or another tenant's, and TooManyAclClasses.
        """
        ...

    async def judge(self, verdict: Verdict) -> Approval:
        """Approves or rejects a READY version; the same decision again changes nothing.

        The next release follows it; a rejected version is withdrawn by a rollback to a release that holds it,
        later versions of the same bytes wait for approval, and the journal tells of it. Raises NotFound, and
        Conflict for a version that isn't READY or that was withdrawn.
        """
        ...


class MoveStore(Protocol):
    """Which stored rows carry another ACL class than their document has by now."""

    async def begin_moves(self, claim: TaskClaim) -> tuple[ReleasePlan, ...]:
        """One plan for each retained revision to be rewritten, its only document the claim's target with
        the class its rows shall carry: the present one, class 0 while the document is revoked.

        What is begun is remembered until ``finish_move``. Empty when there is nothing (left) to do. Raises
        StaleFence.
        """
        ...

    async def finish_move(self, claim: TaskClaim, plan: ReleasePlan, terms: ClassTerms) -> None:
        """The rows are where the plan says, whatever class the document has by now: ``begin_moves`` tells.
        Counts the document's terms in the new class and no longer in the old one. Does nothing when the
        revision is gone. Raises StaleFence.
        """
        ...

    async def distrust_moves(self, claim: TaskClaim) -> None:
        """For a worker that may have written after it lost its claim: a new task moves the target's rows
        once more. Does nothing while the claim is held.
        """
        ...
