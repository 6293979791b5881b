"""Current ACLs, approvals and moves of the in-memory catalog."""

from dataclasses import replace

from gateway.access.classes import CLASS_OF_NOBODY
from gateway.adapters.memory import lexicon
from gateway.adapters.memory.catalog_access import AccessRows
from gateway.adapters.memory.catalog_imports import ImportRows, document_id_of
from gateway.adapters.memory.catalog_releases import planned
from gateway.adapters.memory.catalog_rows import DocumentRow, KnowledgeBaseRow, ReleaseRow, VersionRow
from gateway.errors import Conflict, NotFound
from gateway.ingest.governance import AclChange, Approval, ChangedAcl, Decision, Verdict
from gateway.ingest.manifest import entries_of, manifest_hash
from gateway.ingest.plan import ClassTerms, PlannedDocument, ReleasePlan
from gateway.ingest.task import JOIN_S, TaskClaim, TaskKind, TaskState
from gateway.ingest.uploads import NewDocument
from gateway.observe.audit import AuditRecord
from gateway.release.model import ReleaseState, VersionState
from gateway.retrieval.risk import APPROVED, REJECTED
from gateway.stream.revocation import RevocationKind, RevocationRecord

_MEANING = {Decision.APPROVE: APPROVED, Decision.REJECT: REJECTED}
_RETAINED = frozenset({ReleaseState.ACTIVE, ReleaseState.RETIRED, ReleaseState.READY})
_BUILDING = frozenset({ReleaseState.PENDING, ReleaseState.BUILDING, ReleaseState.VALIDATING})
_MOVE_DEADLINE_S = 86_400.0


class GovernanceRows(ImportRows, AccessRows):
    """``Governance`` and ``MoveStore``."""

    async def set_acl(self, change: AclChange) -> ChangedAcl:
        document = self._live(change.tenant, change.document_id)
        before, acl = document.acl, change.acl
        if before == acl:
            task_id = self._queue_move(document, change.deadline_s)
            return ChangedAcl(change.document_id, acl, narrowed=False, task_id=task_id)
        kb = self._knowledge_bases[document.kb_id]
        document.acl, document.acl_class = acl, self._class_of(kb, acl)
        narrowed = not acl.covers(before)
        if narrowed:
            self._leave_narrowing(document)
            self._bump_epoch(change.tenant)
        kb.acl_revision += 1
        details = {
            "document": change.document_id,
            "allow": sorted(acl.allow),
            "deny": sorted(acl.deny),
            "narrowed": narrowed,
        }
        self._remember(change.tenant, change.subject, "document.acl", details)
        return ChangedAcl(change.document_id, acl, narrowed, self._queue_move(document, change.deadline_s))

    def _leave_narrowing(self, document: DocumentRow) -> None:
        self._note(
            "acl",
            tenant=document.tenant,
            kind="acl",
            document_id=document.document_id,
            allow=sorted(document.acl.allow),
            deny=sorted(document.acl.deny),
            at=self._clock(),
        )

    async def judge(self, verdict: Verdict) -> Approval:
        document = self._live(verdict.tenant, verdict.document_id)
        if not 1 <= verdict.document_version <= len(document.versions):
            raise NotFound("there is no such document version")
        version = document.versions[verdict.document_version - 1]
        if version.state is not VersionState.READY or version.withdrawn:
            raise Conflict("only a version that is ready can be approved or rejected")
        approval = _MEANING[verdict.decision]
        if version.approval != approval:
            version.approval, version.approval_note = approval, verdict.note
            version.approved_by, version.approved_at = verdict.subject, self._clock()
            if approval == REJECTED:
                self._leave_rejection(verdict, version)
            details = {
                "document": verdict.document_id,
                "version": verdict.document_version,
                "approval": approval,
                "note": verdict.note,
            }
            self._remember(verdict.tenant, verdict.subject, "document.approval", details)
        return _approval(version)

    def _leave_rejection(self, verdict: Verdict, version: VersionRow) -> None:
        self._note(
            "rejection",
            tenant=verdict.tenant,
            document_id=verdict.document_id,
            version=verdict.document_version,
            content_sha256=version.document.content_sha256,
            subject=verdict.subject,
            note=verdict.note,
            at=self._clock(),
        )

    def _live(self, tenant: str, document_id: str) -> DocumentRow:
        document = self._document(tenant, document_id)
        if document is None or document.deleted:
            raise NotFound("there is no such document")
        return document

    def _remember(self, tenant: str, subject: str, action: str, details: dict[str, object]) -> None:
        self._audit.append(AuditRecord(self._clock(), tenant, subject, action, "", details))

    async def revoke(
        self, tenant: str, kind: RevocationKind, subject: str, reason: str, revoked_by: str
    ) -> RevocationRecord:
        record = await super().revoke(tenant, kind, subject, reason, revoked_by)
        self._follow(record)
        return record

    async def lift(self, tenant: str, revocation_id: str) -> RevocationRecord:
        record = await super().lift(tenant, revocation_id)
        self._follow(record)
        return record

    def _accept_document(self, kb: KnowledgeBaseRow, new: NewDocument, subject: str) -> VersionRow:
        known = self._documents.get(document_id_of(kb, new.source))
        before = None if known is None or known.deleted else known.acl
        revision = kb.acl_revision
        version = super()._accept_document(kb, new, subject)
        document = self._documents[version.ref.document_id]
        if before is not None and not new.acl.covers(before):
            self._leave_narrowing(document)
        if version.state is VersionState.READY and kb.acl_revision != revision:  # no version brings new rows
            self._queue_move(document, _MOVE_DEADLINE_S)
        return version

    def _follow(self, record: RevocationRecord) -> None:
        """The rows of a document follow its revocation, and its end."""
        if record.kind is RevocationKind.DOCUMENT:
            self._queue_move(self._documents[record.subject], _MOVE_DEADLINE_S)

    def _queue_move(self, document: DocumentRow, deadline_s: float) -> str | None:
        """The task that will move the document's rows; None when none lies wrong."""
        wanted = self._present_class(document)
        lying = (r for r in self._releases_of(document.kb_id) if r.state in _RETAINED | _BUILDING)
        if wanted is None or not any(_lies_wrong(release, document.document_id, wanted) for release in lying):
            return None
        for task in self._tasks.values():
            same = (task.kind, task.target) == (TaskKind.MOVE, document.document_id)
            waits = task.state is TaskState.PENDING and not task.cancel_requested
            if same and waits and task.created_at > self._clock() - JOIN_S:
                return task.task_id
        kb = self._knowledge_bases[document.kb_id]
        return self._new_task(TaskKind.MOVE, kb, deadline_s, target=document.document_id).task_id

    def _queue_owed_moves(self) -> int:
        """Again those that ended without having been done; how many tasks it made."""
        moves = [task for task in self._tasks.values() if task.kind is TaskKind.MOVE]
        undone = {task.target for task in moves if task.state in {TaskState.FAILED, TaskState.CANCELLED}}
        at_it = {task.target for task in moves if task.state in {TaskState.PENDING, TaskState.RUNNING}}
        owed = [self._documents[target] for target in undone - at_it if target is not None]
        return sum(self._queue_move(document, _MOVE_DEADLINE_S) is not None for document in owed)

    def _present_class(self, document: DocumentRow) -> int | None:
        if document.deleted:
            return None
        revoked = document.document_id in self._revoked(document.tenant, RevocationKind.DOCUMENT)
        return CLASS_OF_NOBODY if revoked else document.acl_class

    async def begin_moves(self, claim: TaskClaim) -> tuple[ReleasePlan, ...]:
        task = self._held(claim)
        document = self._documents[str(claim.target)]
        wanted = self._present_class(document)
        if wanted is None:
            return ()
        plans = []
        for release in self._releases_of(task.kb_id):
            if release.state in _RETAINED and _lies_wrong(release, document.document_id, wanted):
                release.moving.add(document.document_id)
                held = _held_in(release, document.document_id)
                now = self._as_planned_now(document, held, wanted)
                plans.append(replace(release.plan, documents=(now,)))
        return tuple(plans)

    def _as_planned_now(
        self, document: DocumentRow, held: PlannedDocument, acl_class: int
    ) -> PlannedDocument:
        version = self._version(held.ref)
        built = version.built
        return held if built is None else replace(planned(document, version, built), acl_class=acl_class)

    async def finish_move(self, claim: TaskClaim, plan: ReleasePlan, terms: ClassTerms) -> None:
        self._held(claim)
        release = self._releases[plan.release_id]
        (moved,) = plan.documents
        if release.state not in _RETAINED:
            return
        kb = self._knowledge_bases[plan.kb_id]
        used = self._classes_in_use(kb)
        stored = _held_in(release, moved.ref.document_id).acl_class
        documents = tuple(moved if d.ref == moved.ref else d for d in release.documents)
        release.plan = replace(
            release.plan, documents=documents, manifest_hash=manifest_hash(entries_of(documents))
        )
        release.moving.discard(moved.ref.document_id)
        if stored != moved.acl_class:
            counted = self._terms.setdefault((plan.tenant, plan.kb_id, plan.kb_revision), {})
            lexicon.move(counted, stored, replace(terms, validity=moved.validity))
        moved_class = stored != moved.acl_class  # others find it now, or do no longer
        kb.acl_revision += moved_class or self._classes_in_use(kb) != used

    async def distrust_moves(self, claim: TaskClaim) -> None:
        task = self._tasks[claim.task_id]
        if task.fence == claim.fence and task.state is TaskState.RUNNING:
            return
        document = self._documents[str(claim.target)]
        for release in self._releases_of(document.kb_id):
            if release.state in _RETAINED and any(
                d.ref.document_id == document.document_id for d in release.documents
            ):
                release.moving.add(document.document_id)
        self._queue_move(document, _MOVE_DEADLINE_S)


def _held_in(release: ReleaseRow, document_id: str) -> PlannedDocument:
    return next(d for d in release.documents if d.ref.document_id == document_id)


def _lies_wrong(release: ReleaseRow, document_id: str, wanted: int) -> bool:
    """Whether its rows have another class, or nobody knows which."""
    held = (d for d in release.documents if d.ref.document_id == document_id)
    return any(d.acl_class != wanted or document_id in release.moving for d in held)


def _approval(version: VersionRow) -> Approval:
    return Approval(
        document_id=version.ref.document_id,
        document_version=version.ref.document_version,
        approval=version.approval,
        approved_by=version.approved_by or "",
        approved_at=version.approved_at or 0.0,
        note=version.approval_note,
        risk=version.risk,
    )
