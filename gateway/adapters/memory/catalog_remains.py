"""What the in-memory catalog has no need of any more: deletions, clean-ups, reclaim."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.adapters.memory import lexicon
from gateway.adapters.memory.catalog_references import OVER, ReferenceRows, held_version
from gateway.adapters.memory.catalog_rows import DocumentRow, KnowledgeBaseRow, ReleaseRow, VersionRow
from gateway.ingest.manifest import entries_of, manifest_hash
from gateway.ingest.plan import ClassTerms, PlannedDocument
from gateway.ingest.references import (
    CLEANUP_DEADLINE_S,
    DeletedVersion,
    DocumentTerms,
    Holding,
    ReclaimPolicy,
    Remains,
    StoredRevision,
)
from gateway.ingest.task import JOIN_S, TaskClaim, TaskKind, TaskState
from gateway.release.model import ReleaseState, check_release_transition
from gateway.stream.revocation import RevocationKind, RevocationRecord

_LIVE_TASKS = frozenset({TaskState.PENDING, TaskState.RUNNING})
#: sweeps of a reclaimed revision until its afterlife is over
_SWEEPS = 4


class RemainsRows(ReferenceRows):
    """``RemainsStore`` and ``ReclaimStore``, and the deletions that come before."""

    async def delete_document(self, tenant: str, document_id: str) -> str | None:
        document = self._document(tenant, document_id)
        if document is None or document.deleted:
            return None
        document.deleted_at = self._clock()
        # A later import under the same source brings none of them back.
        for version in document.versions:
            version.withdrawn = True
            version.deleted_at = version.deleted_at or document.deleted_at
        self._bump_epoch(tenant)
        kb = self._knowledge_bases[document.kb_id]
        kb.acl_revision += 1
        self._note("deletion", tenant=tenant, document_id=document_id, at=document.deleted_at)
        return self._queue_cleanup(kb, document_id)

    async def revoke(
        self, tenant: str, kind: RevocationKind, subject: str, reason: str, revoked_by: str
    ) -> RevocationRecord:
        record = await super().revoke(tenant, kind, subject, reason, revoked_by)
        if record.task_id is not None or kind in {RevocationKind.USER, RevocationKind.GROUP}:
            return record
        target = subject if kind is RevocationKind.DOCUMENT else None
        kb = self._kb_named(tenant, subject)
        if target is not None:
            kb = self._knowledge_bases[self._documents[target].kb_id]
        assert kb is not None  # noqa: S101 - else it could not be revoked
        record = replace(record, task_id=self._queue_cleanup(kb, target))
        self._revocations[record.revocation_id] = record
        return record

    async def distrust_moves(self, claim: TaskClaim) -> None:
        await super().distrust_moves(claim)
        task, document = self._tasks[claim.task_id], self._documents[str(claim.target)]
        held = task.fence == claim.fence and task.state is TaskState.RUNNING
        if document.deleted and not held:  # what was just written may have come after its clean-up
            self._queue_cleanup(self._knowledge_bases[document.kb_id], document.document_id)

    def _queue_cleanup(self, kb: KnowledgeBaseRow, target: str | None) -> str:
        for task in self._tasks.values():
            same = (task.kind, task.kb_id, task.target) == (TaskKind.CLEANUP, kb.kb_id, target)
            waits = task.state is TaskState.PENDING and not task.cancel_requested
            if same and waits and task.created_at > self._clock() - JOIN_S:
                return task.task_id
        return self._new_task(TaskKind.CLEANUP, kb, CLEANUP_DEADLINE_S, target=target).task_id

    # what a document left

    async def remains(self, claim: TaskClaim) -> Remains | None:
        self._held(claim)
        document = self._documents.get(claim.target or "")
        deleted = [] if document is None else [v for v in document.versions if v.deleted_at is not None]
        if document is None or not deleted:
            return None
        texts = {entry.text_hash for v in deleted if v.built for entry in v.built.manifest}
        files = {place.object_key for (_, text), place in self._vectors.items() if text in texts}
        return Remains(
            document_id=document.document_id,
            deleted_at=max(version.deleted_at or 0.0 for version in deleted),
            versions=tuple(map(_deleted_version, deleted)),
            holdings=tuple(self._holdings(document)),
            vector_files=tuple(sorted(files)),
            spaces=tuple(self._spaces),
        )

    def _holdings(self, document: DocumentRow) -> Iterable[Holding]:
        for release in self._releases_of(document.kb_id):
            held = held_version(release, document.document_id)
            live = held is not None and document.versions[held - 1].deleted_at is None
            if release.state is not ReleaseState.RECLAIMED and not live:
                yield Holding(_stored(release), held)

    async def forget(self, claim: TaskClaim, holding: Holding, terms: DocumentTerms | None) -> None:
        task = self._held(claim)
        release = self._releases[holding.revision.release_id]
        gone = [d for d in release.documents if _is(d, claim.target, holding.version)]
        if not gone:
            return
        kb = self._knowledge_bases[task.kb_id]
        used = self._classes_in_use(kb)
        documents = tuple(d for d in release.documents if d not in gone)
        release.plan = replace(
            release.plan, documents=documents, manifest_hash=manifest_hash(entries_of(documents))
        )
        if terms is not None:
            plan, document = release.plan, gone[0]
            counted = self._terms.get((plan.tenant, plan.kb_id, plan.kb_revision), {})
            less = ClassTerms(document.acl_class, terms.passages, terms.frequencies, document.validity)
            lexicon.subtract(counted, document.acl_class, less)
        kb.acl_revision += self._classes_in_use(kb) != used

    async def erase(self, claim: TaskClaim, versions: Sequence[int]) -> None:
        self._held(claim)
        document = self._documents[str(claim.target)]
        for number in versions:
            document.versions[number - 1].built = None

    # revisions

    async def schedule_reclaims(self, policy: ReclaimPolicy, deadline_s: float) -> int:
        made = 0
        for kb in self._knowledge_bases.values():
            if self._due(kb.kb_id, policy) and not self._is_at(TaskKind.RECLAIM, kb.kb_id, None):
                self._new_task(TaskKind.RECLAIM, kb, deadline_s)
                made += 1
        for document in self._documents.values():
            unclean = any(v.built is not None for v in document.versions if v.deleted_at is not None)
            if unclean and not self._is_at(TaskKind.CLEANUP, document.kb_id, document.document_id):
                self._queue_cleanup(self._knowledge_bases[document.kb_id], document.document_id)
                made += 1
        return made + self._queue_owed_moves()

    def _is_at(self, kind: TaskKind, kb_id: str, target: str | None) -> bool:
        live = (task for task in self._tasks.values() if task.state in _LIVE_TASKS)
        return any((task.kind, task.kb_id, task.target) == (kind, kb_id, target) for task in live)

    def _due(self, kb_id: str, policy: ReclaimPolicy) -> list[ReleaseRow]:
        releases = list(self._releases_of(kb_id))
        ways_back = [r for r in releases if r.state is ReleaseState.RETIRED and r.retired]
        newest = sorted(ways_back, key=lambda release: -release.retired)[: policy.releases]
        kept = {release.plan.release_id for release in newest}
        return [r for r in releases if r.plan.release_id not in kept and self._is_due(r, policy)]

    def _is_due(self, release: ReleaseRow, policy: ReclaimPolicy) -> bool:
        now = self._clock()
        until = now - policy.window_s
        if release.state is ReleaseState.RETIRED:
            return (release.retired_at or 0.0) <= until
        if release.state is ReleaseState.READY:
            return release.created_at <= until and self._tasks[release.task_id].state not in _LIVE_TASKS
        if release.state is ReleaseState.RECLAIMED and release.swept_at is not None:
            over = release.swept_at >= (release.reclaimed_at or 0.0) + policy.afterlife_s
            return not over and release.swept_at <= now - policy.afterlife_s / _SWEEPS
        return release.state in OVER

    async def begin_reclaim(self, claim: TaskClaim, policy: ReclaimPolicy) -> list[StoredRevision]:
        task = self._held(claim)
        due = self._due(task.kb_id, policy)
        for release in due:
            plan = release.plan
            if release.state is not ReleaseState.RECLAIMED:
                check_release_transition(release.state, ReleaseState.RECLAIMED)
                release.state = ReleaseState.RECLAIMED
                self._terms.pop((plan.tenant, plan.kb_id, plan.kb_revision), None)
            release.reclaimed_at = release.reclaimed_at or self._clock()
        return [_stored(release) for release in due]

    async def swept(self, claim: TaskClaim, revision: StoredRevision) -> None:
        self._held(claim)
        self._releases[revision.release_id].swept_at = self._clock()

    async def claim_sweep(self, every_s: float) -> bool:
        now = self._clock()
        if self._objects_swept_at > now - every_s:
            return False
        self._objects_swept_at = now
        return True


def _stored(release: ReleaseRow) -> StoredRevision:
    return StoredRevision(release.plan.release_id, release.plan.kb_revision, release.plan.space)


def _deleted_version(version: VersionRow) -> DeletedVersion:
    built = version.built
    return DeletedVersion(
        version.ref.document_version,
        "" if built is None else built.title,
        version.document.original_key,
        "" if built is None else built.chunks_key,
    )


def _is(planned: PlannedDocument, document_id: str | None, version: int | None) -> bool:
    return (planned.ref.document_id, planned.ref.document_version) == (document_id, version)
