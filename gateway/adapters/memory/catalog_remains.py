"""What the in-memory catalog has no need of any more: deletions, clean-ups, reclaim, condemned objects."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory import lexicon
from gateway.adapters.memory.catalog_governance import GovernanceRows
from gateway.adapters.memory.catalog_rows import DocumentRow, KnowledgeBaseRow, ReleaseRow, VersionRow
from gateway.adapters.memory.catalog_versions import VersionRows
from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.manifest import entries_of, manifest_hash
from gateway.ingest.plan import ClassTerms, PlannedDocument
from gateway.ingest.references import (
    CHUNKS,
    CLEANUP_DEADLINE_S,
    FILES_GONE,
    ORIGINALS,
    TAKEOVER_S,
    VECTORS,
    DeletedVersion,
    DocumentTerms,
    Holding,
    ReclaimPolicy,
    Remains,
    Sentence,
    StoredRevision,
    owner_of,
)
from gateway.ingest.task import JOIN_S, TaskClaim, TaskKind, TaskState
from gateway.ingest.uploads import Accepted, ImportRequest
from gateway.ingest.version import BuiltVersion, VectorPlace
from gateway.release.model import ReleaseState, VersionState, check_release_transition
from gateway.stream.revocation import RevocationKind, RevocationRecord

_LIVE_TASKS = frozenset({TaskState.PENDING, TaskState.RUNNING})
_OVER = frozenset({ReleaseState.FAILED, ReleaseState.RECLAIMED})
_ENDED = frozenset({VersionState.READY, VersionState.FAILED})
#: sweeps of a reclaimed revision until its afterlife is over
_SWEEPS = 4


class RemainsRows(GovernanceRows, VersionRows):
    """``RemainsStore``, ``ReferenceStore`` and ``ReclaimStore``, and the deletions that come before."""

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
            held = _held_version(release, document.document_id)
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

    # objects

    async def accept_import(self, request: ImportRequest) -> Accepted:
        originals = [document.original_key for document in request.documents]
        until = self._clock() - TAKEOVER_S
        left = {key for key in originals if self._condemned.get(key, self._clock()) <= until}
        self._expect_kept(set(originals) - left)
        accepted = await super().accept_import(request)
        for key in left:  # nobody came to bury it, and he looks again afterwards
            self._condemned.pop(key, None)
        return accepted

    async def complete_versions(self, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        known = set(self._vectors)
        for each in built:
            self._expect_kept([each.chunks_key, *(p.object_key for p in each.new_vectors.values())])
            known |= {(each.space_id, text) for text in each.new_vectors}
        if not known >= {(each.space_id, entry.text_hash) for each in built for entry in each.manifest}:
            raise ObjectStoreUnavailable("vectors of known texts were cleaned up meanwhile")
        await super().complete_versions(claim, built)

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        self._expect_kept(place.object_key for place in places.values())
        await super().add_vector_places(claim, space_id, places)

    def _expect_kept(self, keys: Iterable[str]) -> None:
        moments = [self._condemned[key] for key in keys if key in self._condemned]
        if moments:
            left_s = max(moments) + TAKEOVER_S - self._clock()
            raise ObjectStoreUnavailable(
                "what was stored is just being cleaned up", retry_after_ms=math.ceil(max(left_s, 1.0) * 1000)
            )

    async def condemn(self, keys: Sequence[str], window_s: float, takeover_s: float) -> Sentence:
        now = self._clock()
        wanted = sorted(set(keys))
        busy = [key for key in wanted if self._condemned.get(key, 0.0) > now - takeover_s]
        needed = [key for key in wanted if key not in busy and self._has_need(key, now - window_s)]
        doomed = [key for key in wanted if key not in busy and key not in needed]
        self._condemned.update(dict.fromkeys(doomed, now))
        self._vectors = {text: p for text, p in self._vectors.items() if p.object_key not in doomed}
        self._withdraw_versions_of(doomed)
        return Sentence(now, tuple(doomed), tuple(needed), tuple(busy))

    def _withdraw_versions_of(self, doomed: Sequence[str]) -> None:
        for version in (v for d in self._documents.values() for v in d.versions):
            files = {version.document.original_key, version.built.chunks_key if version.built else ""}
            if version.state is VersionState.READY and not version.withdrawn and not files.isdisjoint(doomed):
                version.withdrawn, version.withdrawn_at = True, FILES_GONE

    def _has_need(self, key: str, withdrawn_since: float) -> bool:
        kind, owner = key.partition("/")[0], owner_of(key)
        versions = [v for d in self._documents.values() for v in d.versions]
        needed = [version for version in versions if self._is_needed(version, withdrawn_since)]
        if kind == ORIGINALS:
            return any(version.document.original_key == key for version in needed)
        if kind == CHUNKS and owner is not None:
            mine = (version for version in needed if version.ref == owner)
            return any(v.state not in _ENDED or (v.built and v.built.chunks_key == key) for v in mine)
        if kind == VECTORS and owner is not None:
            texts = {text for (_, text), place in self._vectors.items() if place.object_key == key}
            return any(e.text_hash in texts for v in needed if v.built for e in v.built.manifest)
        return True

    def _is_needed(self, version: VersionRow, withdrawn_since: float) -> bool:
        if version.deleted_at is not None:
            return False
        if version.state not in _ENDED or self._is_in_a_release(version.ref):
            return True
        if version.state is not VersionState.READY:
            return False
        document = self._documents[version.ref.document_id]
        active = self._active(document.kb_id)
        shown = None if active is None else _held_version(active, document.document_id)
        if not version.withdrawn:
            return shown is None or shown <= version.ref.document_version
        return (version.withdrawn_at or 0.0) > withdrawn_since

    def _is_in_a_release(self, ref: DocumentRef) -> bool:
        retained = (release for release in self._releases.values() if release.state not in _OVER)
        return any(planned.ref == ref for release in retained for planned in release.documents)

    async def bury(self, sentence: Sentence) -> None:
        for key in sentence.condemned:
            if self._condemned.get(key) == sentence.at:
                del self._condemned[key]

    async def left_condemned(self, takeover_s: float) -> list[str]:
        until = self._clock() - takeover_s
        return sorted(key for key, at in self._condemned.items() if at <= until)

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
        return release.state in _OVER

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


def _held_version(release: ReleaseRow, document_id: str) -> int | None:
    refs: Collection[DocumentRef] = [planned.ref for planned in release.documents]
    return next((ref.document_version for ref in refs if ref.document_id == document_id), None)


def _is(planned: PlannedDocument, document_id: str | None, version: int | None) -> bool:
    return (planned.ref.document_id, planned.ref.document_version) == (document_id, version)
