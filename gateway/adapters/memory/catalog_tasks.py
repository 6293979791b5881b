"""Accepting imports, and the tasks of the in-memory catalog: lease, fence, attempts, cancel."""

import json

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.adapters.memory.catalog_rows import (
    CatalogRows,
    DocumentRow,
    KnowledgeBaseRow,
    TaskRow,
    VersionRow,
    fingerprint,
    fresh_id,
)
from gateway.errors import Conflict, IdempotencyMismatch, IllegalTransition, KnowledgeBaseNotFound
from gateway.ingest.task import (
    Ending,
    TaskClaim,
    TaskDocument,
    TaskKind,
    TaskRecord,
    TaskState,
    check_task_transition,
)
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument
from gateway.release.model import VersionState
from gateway.retrieval.chunk import stable_hash
from gateway.stream.revocation import RevocationKind

_LIVE = frozenset({TaskState.PENDING, TaskState.RUNNING})


class TaskRows(CatalogRows):
    """``TaskStore``. Workers poll the tasks themselves, so the twin needs no outbox."""

    async def accept_import(self, request: ImportRequest) -> Accepted:
        answered = self._answered(request)
        if answered is not None:
            return answered
        if request.knowledge_base in self._revoked(request.tenant, RevocationKind.KNOWLEDGE_BASE):
            raise Conflict("this knowledge base is revoked")
        kb = self._kb_named(request.tenant, request.knowledge_base) or self._new_kb(request)
        versions = [self._accept_document(kb, document) for document in request.documents]
        task = self._new_task(
            TaskKind.IMPORT,
            kb,
            request.deadline_s,
            refs=tuple(dict.fromkeys(version.ref for version in versions)),
            activate=request.activate,
            allow_partial=request.allow_partial,
        )
        accepted = Accepted(
            task_id=task.task_id,
            documents=tuple(
                AcceptedDocument(v.ref.document_id, v.ref.document_version, v.document.source)
                for v in versions
            ),
        )
        if request.idempotency_key is not None:
            key = (request.tenant, request.subject, request.idempotency_key)
            self._answers[key] = (request.request_hash, accepted)
        return accepted

    def _answered(self, request: ImportRequest) -> Accepted | None:
        if request.idempotency_key is None:
            return None
        known = self._answers.get((request.tenant, request.subject, request.idempotency_key))
        if known is None:
            return None
        if known[0] != request.request_hash:
            raise IdempotencyMismatch()
        return known[1]

    def _new_kb(self, request: ImportRequest) -> KnowledgeBaseRow:
        kb = KnowledgeBaseRow(
            stable_hash("kb", request.tenant, request.knowledge_base), request.tenant, request.knowledge_base
        )
        self._knowledge_bases[kb.kb_id] = kb
        return kb

    def _class_of(self, kb: KnowledgeBaseRow, acl: Acl) -> int:
        return kb.classes.setdefault(acl, len(kb.classes) + 1)

    def _accept_document(self, kb: KnowledgeBaseRow, new: NewDocument) -> VersionRow:
        document_id = stable_hash("document", kb.tenant, kb.kb_id, new.source)
        acl_class = self._class_of(kb, new.acl)
        document = self._documents.get(document_id)
        if document is None:
            used = {other.acl_class for other in self._documents_of(kb.kb_id) if not other.deleted}
            kb.acl_revision += acl_class not in used
            document = DocumentRow(
                document_id, kb.tenant, kb.kb_id, new.source, new.acl, acl_class, self._clock()
            )
            self._documents[document_id] = document
        standing = _newest_standing(document)
        if document.deleted or document.acl_class != acl_class:
            kb.acl_revision += 1
        document.acl, document.acl_class = new.acl, acl_class
        if not document.deleted and standing is not None and standing.fingerprint == fingerprint(new):
            return standing
        document.deleted_at = None
        version = VersionRow(DocumentRef(document_id, len(document.versions) + 1), new, acl_class)
        document.versions.append(version)
        return version

    def _new_task(
        self,
        kind: TaskKind,
        kb: KnowledgeBaseRow,
        deadline_s: float,
        *,
        refs: tuple[DocumentRef, ...] = (),
        activate: bool = False,
        allow_partial: bool = False,
        target: str | None = None,
    ) -> TaskRow:
        now = self._clock()
        task = TaskRow(
            task_id=fresh_id(),
            kind=kind,
            tenant=kb.tenant,
            kb_id=kb.kb_id,
            activate=activate,
            allow_partial=allow_partial,
            deadline_at=now + deadline_s,
            created_at=now,
            updated_at=now,
            refs=refs,
            total=len(refs),
            promised_release_id=fresh_id() if kind is TaskKind.RELEASE else None,
            target=target,
        )
        self._tasks[task.task_id] = task
        return task

    async def accept_release(self, tenant: str, knowledge_base: str, deadline_s: float) -> Accepted:
        kb = self._kb_named(tenant, knowledge_base)
        if kb is None:
            raise KnowledgeBaseNotFound()
        task = self._new_task(TaskKind.RELEASE, kb, deadline_s)
        return Accepted(task.task_id, (), task.promised_release_id)

    async def claim(self, worker: str, lease_s: float, attempts: int) -> TaskClaim | None:
        now = self._clock()
        free = [task for task in self._tasks.values() if _is_free(task, now)]
        hopeful = [task for task in free if not self._end_if_hopeless(task, now, attempts)]
        for task in hopeful:
            if not self._busy_with_another(task):
                return self._take(task, now + lease_s)
        return None

    def _end_if_hopeless(self, task: TaskRow, now: float, attempts: int) -> bool:
        """Nobody may claim it again: it was cancelled, or is out of time or of attempts."""
        if task.cancel_requested:
            self._end(task, Ending(TaskState.CANCELLED))
        elif now >= task.deadline_at:
            self._end(task, Ending(TaskState.FAILED, "deadline_exceeded", "the task ran out of time"))
        elif task.attempts >= attempts:
            tried = f"the task was tried {task.attempts} times"
            self._end(task, Ending(TaskState.FAILED, "attempts_exhausted", tried))
        return task.state not in _LIVE

    def _busy_with_another(self, task: TaskRow) -> bool:
        return any(
            other.kb_id == task.kb_id and other.state is TaskState.RUNNING and other is not task
            for other in self._tasks.values()
        )

    def _take(self, task: TaskRow, lease_until: float) -> TaskClaim:
        check_task_transition(task.state, TaskState.RUNNING)
        task.state = TaskState.RUNNING
        task.fence += 1
        task.attempts += 1
        task.lease_until = lease_until
        task.updated_at = self._clock()
        return TaskClaim(
            task_id=task.task_id,
            kind=task.kind,
            tenant=task.tenant,
            kb_id=task.kb_id,
            fence=task.fence,
            lease_until=lease_until,
            deadline_at=task.deadline_at,
            activate=task.activate,
            allow_partial=task.allow_partial,
            release_id=task.release_id,
            target=task.target,
        )

    def _end(self, task: TaskRow, ending: Ending) -> None:
        state = ending.state
        if state in _LIVE:
            raise IllegalTransition(f"{state} is no end of a task")
        check_task_transition(task.state, state)
        task.state, task.error_code, task.error_detail = state, ending.code, ending.detail
        # What a database can't keep must not be kept here either.
        task.report = None if ending.report is None else json.loads(json.dumps(dict(ending.report)))
        task.updated_at = self._clock()
        if state is not TaskState.SUCCEEDED:
            self._abandon(task.task_id, ending.code or state.value.lower())

    async def heartbeat(self, claim: TaskClaim, lease_s: float) -> bool:
        task = self._held(claim)
        task.lease_until = self._clock() + lease_s
        return task.cancel_requested

    async def progress(self, claim: TaskClaim, stage: str, done: int, total: int) -> None:
        task = self._held(claim)
        task.stage, task.done, task.total = stage, done, total
        task.updated_at = self._clock()

    async def finish(self, claim: TaskClaim, ending: Ending) -> None:
        self._end(self._held(claim), ending)

    async def release_claim(self, claim: TaskClaim) -> None:
        task = self._held(claim)
        check_task_transition(task.state, TaskState.PENDING)
        task.state = TaskState.PENDING
        task.attempts -= 1
        task.lease_until = 0.0
        task.updated_at = self._clock()

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None:
        task = self._tasks.get(task_id)
        if task is None or task.tenant != tenant:
            return None
        return TaskRecord(
            task_id=task.task_id,
            kind=task.kind,
            tenant=task.tenant,
            state=task.state,
            stage=task.stage,
            done=task.done,
            total=task.total,
            error_code=task.error_code,
            error_detail=task.error_detail,
            documents=tuple(self._task_document(ref) for ref in task.refs),
            release_id=task.release_id or task.promised_release_id,
            created_at=task.created_at,
            updated_at=task.updated_at,
            target=task.target,
            report=task.report,
        )

    def _task_document(self, ref: DocumentRef) -> TaskDocument:
        version = self._version(ref)
        return TaskDocument(
            ref.document_id, ref.document_version, version.document.source, version.state, version.error
        )

    async def request_cancel(self, tenant: str, task_id: str) -> bool:
        task = self._tasks.get(task_id)
        if task is None or task.tenant != tenant or task.state not in _LIVE:
            return False
        if task.state is TaskState.PENDING:
            self._end(task, Ending(TaskState.CANCELLED))
        else:
            task.cancel_requested = True
        return True


def _is_free(task: TaskRow, now: float) -> bool:
    lapsed = task.state is TaskState.RUNNING and task.lease_until <= now
    return task.state is TaskState.PENDING or lapsed


def _newest_standing(document: DocumentRow) -> VersionRow | None:
    """The newest version that neither failed nor was withdrawn."""
    return next(
        (v for v in reversed(document.versions) if v.state is not VersionState.FAILED and not v.withdrawn),
        None,
    )
