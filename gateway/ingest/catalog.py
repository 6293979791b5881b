"""The port to the import side of the catalog: tasks, versions, manifests, releases.

Each method is one transaction, or, where nobody can see it half done, several short ones: a revocation
waits for none that is long. Methods that take a claim raise StaleFence when another worker holds
the task by now, and every method raises CatalogUnavailable when the catalog can't answer. An ``act`` is
kept together with what it changes: its audit entry, and under its key the answer (see ``Act``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from gateway.access.act import Act
from gateway.access.authorizer import DocumentRef
from gateway.ingest.plan import Activation, ClassTerms, ReleasePlan
from gateway.ingest.task import WAIT_S, Ending, TaskClaim, TaskQuery, TaskRecord
from gateway.ingest.uploads import Accepted, DocumentRecord, ImportRequest
from gateway.ingest.version import BuiltVersion, VectorPlace, VersionJob
from gateway.release.diff import ReleaseDiff
from gateway.release.model import (
    EmbeddingSpace,
    KnowledgeBaseRecord,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
    VersionState,
)


class TaskStore(Protocol):
    async def accept_import(self, request: ImportRequest) -> Accepted:
        """Versions + task + outbox in one transaction; makes the knowledge base when it is new.

        Same tenant + knowledge base + source is a new version of the same document; identical
        bytes, metadata and ACL return the existing version. Raises IdempotencyMismatch, and
        Conflict when the importing knowledge base is revoked.
        """
        ...

    async def accept_release(
        self, tenant: str, knowledge_base: str, deadline_s: float, *, act: Act | None = None
    ) -> Accepted:
        """A release task; ``documents`` is empty. Raises KnowledgeBaseNotFound."""
        ...

    async def claim(
        self, worker: str, lease_s: float, attempts: int, wait_s: float = WAIT_S
    ) -> TaskClaim | None:
        """A task that is PENDING and doesn't rest, or whose lease ran out; at most one running per
        knowledge base. Of the tenant with the fewest running ones, then the one served longest ago;
        among his by TASK_RANKS, then the oldest.

        A task past its deadline or its attempts, accepted ``wait_s`` ago, or sent by somebody who was revoked
        since, becomes FAILED instead of being claimed, a cancelled one CANCELLED. Attempts are starts that
        ended without a word. The deadline moves on while no worker has a right to the task.
        """
        ...

    async def heartbeat(self, claim: TaskClaim, lease_s: float) -> bool:
        """Extends the lease; True when the task was asked to cancel."""
        ...

    async def progress(self, claim: TaskClaim, stage: str, done: int, total: int) -> None: ...

    async def finish(self, claim: TaskClaim, ending: Ending) -> None:
        """Raises IllegalTransition unless it is an end. Unless it is SUCCEEDED, the task's versions that
        aren't built are FAILED as well, but for those that another live task will build.
        """
        ...

    async def release_claim(self, claim: TaskClaim) -> None:
        """Gives the task back at once (shutdown); it doesn't count as an attempt."""
        ...

    async def put_off(self, claim: TaskClaim, trouble: str, rest_s: float) -> None:
        """Gives the task back after passing trouble (its code): it isn't claimed before ``rest_s`` have
        passed on the database's clock. It doesn't count as an attempt.
        """
        ...

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None: ...

    async def tasks(self, tenant: str, query: TaskQuery) -> list[TaskRecord]:
        """Newest first, without their documents; nothing for an unknown knowledge base. Raises
        InvalidField when ``before`` is no task of the tenant's.
        """
        ...

    async def request_cancel(self, tenant: str, task_id: str) -> bool:
        """False when there is no such task or it has ended."""
        ...

    async def purge(self, keys_s: float, tasks_s: float) -> int:
        """Deletes idempotency keys older than ``keys_s``, and what is older than ``tasks_s`` of ended
        tasks and of sent outbox entries: of tasks as many as one short transaction may hold. Tasks that a
        version or a release names stay. Returns how many tasks are gone.
        """
        ...


class VersionStore(Protocol):
    async def unfinished_versions(self, claim: TaskClaim) -> list[VersionJob]:
        """The task's versions that are not READY or FAILED, in order of acceptance."""
        ...

    async def advance_versions(
        self, claim: TaskClaim, refs: Sequence[DocumentRef], state: VersionState
    ) -> None:
        """All or none, to any state but READY, which comes with the manifest. Raises IllegalTransition, and
        NotFound for a version that isn't one of the task's.
        """
        ...

    async def complete_versions(self, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        """All or none of them: manifest, vector places and READY at once; replays change nothing. Raises as
        ``advance_versions``.
        """
        ...

    async def fail_version(self, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None: ...

    async def vector_places(self, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]: ...

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        """Of texts, by their hash, that have none in this space yet; who has one keeps it."""
        ...

    async def documents(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, after: str | None = None
    ) -> list[DocumentRecord]:
        """Live documents, by source in order of code points: all, or at most ``limit`` with a source behind
        ``after``. Empty for an unknown knowledge base.
        """
        ...

    async def document(self, tenant: str, document_id: str) -> DocumentRecord | None: ...

    async def delete_document(self, tenant: str, document_id: str) -> str | None:
        """Marks it and all of its versions deleted (blocked for every reader at once); the task that takes
        away what is left of them, None when there is no such document.
        """
        ...


class ReleaseStore(Protocol):
    async def begin_release(
        self, claim: TaskClaim, space: EmbeddingSpace, config: RetrievalConfig, model: str = ""
    ) -> ReleasePlan:
        """Snapshot of the newest READY, not withdrawn version of each live, unrevoked document. ``model``:
        the adapter that is to answer from it first; '' for whichever is configured first.

        Makes the release BUILDING with a fresh kb_revision; an unfinished one of the same task is
        marked FAILED first.
        """
        ...

    async def advance_release(
        self,
        claim: TaskClaim,
        release_id: str,
        state: ReleaseState,
        *,
        barrier: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> None: ...

    async def store_terms(self, claim: TaskClaim, kb_revision: str, classes: Sequence[ClassTerms]) -> None:
        """Replaces whatever was counted for the revision, piece by piece. Raises NotFound unless it is one of
        the task's.
        """
        ...

    async def activate(
        self,
        tenant: str,
        release_id: str,
        expected_sequence: int | None,
        claim: TaskClaim | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        """One conditional update: the sequence is still the one the build began with (or the
        expected one), every document of the release is live and has the ACL class it was built
        with. A worker gives its ``claim``, an operator none. Raises ReleaseConflict, NotFound,
        IllegalTransition, and PrincipalRevoked when who sent the claim's task was revoked.
        """
        ...

    async def roll_back(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        """Back to the release that was active before, under a new, higher sequence; versions newer
        than its snapshot, and those it holds that were rejected, become withdrawn and the tenant's
        epoch rises. Rolling back again goes further back, never to a release gone back from or one
        with versions so withdrawn. Raises KnowledgeBaseNotFound, and ReleaseConflict when there is none
        or the sequence isn't the expected one.
        """
        ...

    async def roll_back_config(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        act: Act | None = None,
    ) -> Activation:
        """Binds the active release to the retrieval config that was active before in its space, under a
        new, higher sequence; the revision stays. Rolling back again goes further back. Builds don't come
        back to a config gone back from: they take the bound one. Raises as ``roll_back``.
        """
        ...

    async def roll_back_model(
        self,
        tenant: str,
        knowledge_base: str,
        expected_sequence: int | None = None,
        *,
        configured: Collection[str],
        act: Act | None = None,
    ) -> Activation:
        """Binds the active release to the model adapter that answered before, under a new, higher sequence;
        the revision stays. Otherwise as ``roll_back_config``. Raises ReleaseConflict, too, when that adapter
        isn't one of ``configured``.
        """
        ...

    async def diff_releases(self, tenant: str, release_id: str, against: str | None = None) -> ReleaseDiff:
        """What the release has that ``against``, the active one when None, hasn't, and the other way
        round. Raises NotFound, also when the two are of different knowledge bases.
        """
        ...

    async def knowledge_bases(self, tenant: str) -> list[KnowledgeBaseRecord]:
        """All of the tenant's, by name."""
        ...

    async def releases(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, before: str | None = None
    ) -> list[ReleaseRecord]:
        """Newest first: all, or at most ``limit`` that are older than the release with the id ``before``.
        Empty for an unknown knowledge base. Raises InvalidField when ``before`` is no release of it.
        """
        ...

    async def release(self, tenant: str, release_id: str) -> ReleaseRecord | None: ...

    async def mark_reclaimed(self, tenant: str, release_id: str) -> None:
        """READY, RETIRED or FAILED -> RECLAIMED: counts nothing from then on, and its term statistics are
        dropped, by this call or by the next reclaim.
        """
        ...
