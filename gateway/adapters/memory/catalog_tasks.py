"""Accepting imports, and the tasks of the in-memory catalog: lease, fence, attempts, cancel."""

import json

from gateway.access.act import Act
from gateway.access.authorizer import DocumentRef
from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, refuse_too_many
from gateway.adapters.memory.catalog_rows import (
    CatalogRows,
    DocumentRow,
    KnowledgeBaseRow,
    TaskRow,
    VersionRow,
    fresh_id,
    newest_standing,
)
from gateway.adapters.memory.turns import is_unowned, next_task, work_left_s
from gateway.errors import Conflict, IllegalTransition, InvalidField, KnowledgeBaseNotFound
from gateway.ingest.task import (
    ASKER_REVOKED,
    CANCELLED,
    WAIT_S,
    Ending,
    TaskClaim,
    TaskDocument,
    TaskKind,
    TaskQuery,
    TaskRecord,
    TaskState,
    check_task_transition,
    out_of_attempts,
    out_of_time,
    waited_too_long,
)
from gateway.ingest.uploads import Accepted, AcceptedDocument, ImportRequest, NewDocument
from gateway.release.model import VersionState
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.risk import APPROVED
from gateway.stream.revocation import RevocationKind

_LIVE = frozenset({TaskState.PENDING, TaskState.RUNNING})
_BUILT_OR_NOT = frozenset({VersionState.READY, VersionState.FAILED})


class TaskRows(CatalogRows):
    """``TaskStore``. Workers poll the tasks themselves, so the twin needs no outbox."""

    async def accept_import(self, request: ImportRequest) -> Accepted:
        if request.knowledge_base in self._revoked(request.tenant, RevocationKind.KNOWLEDGE_BASE):
            raise Conflict("this knowledge base is revoked")
        kb = self._kb_named(request.tenant, request.knowledge_base) or self._new_kb(request)
        versions = [self._accept_document(kb, document, request.subject) for document in request.documents]
        task = self._new_task(
            TaskKind.IMPORT,
            kb,
            request.deadline_s,
            subject=request.subject,
            refs=tuple(dict.fromkeys(version.ref for version in versions)),
            activate=request.activate,
            allow_partial=request.allow_partial,
        )
        return Accepted(
            task_id=task.task_id,
            documents=tuple(
                AcceptedDocument(v.ref.document_id, v.ref.document_version, v.document.source)
                for v in versions
            ),
        )

    def _new_kb(self, request: ImportRequest) -> KnowledgeBaseRow:
        kb = KnowledgeBaseRow(
            stable_hash("kb", request.tenant, request.knowledge_base), request.tenant, request.knowledge_base
        )
        self._knowledge_bases[kb.kb_id] = kb
        return kb

    def _class_of(self, kb: KnowledgeBaseRow, acl: Acl) -> int:
        number = kb.classes.get(acl)
        if len(kb.classes) >= MAX_PERMITTED_CLASSES and (number is None or not self._is_used(kb, number)):
            refuse_too_many([used for used in self._classes_in_use(kb) if used.number != number], acl)
        return kb.classes.setdefault(acl, len(kb.classes) + 1)

    def _accept_document(self, kb: KnowledgeBaseRow, new: NewDocument, subject: str) -> VersionRow:
        document_id = document_id_of(kb, new.source)
        acl_class = self._class_of(kb, new.acl)
        document = self._documents.get(document_id)
        if document is None:
            kb.acl_revision += not self._is_used(kb, acl_class)
            document = DocumentRow(
                document_id, kb.tenant, kb.kb_id, new.source, new.acl, acl_class, self._clock()
            )
            self._documents[document_id] = document
        standing = newest_standing(document)
        if document.deleted or document.acl_class != acl_class:
            kb.acl_revision += 1
        document.acl, document.acl_class = new.acl, acl_class
        if not document.deleted and standing is not None and standing.document.fingerprint == new.fingerprint:
            return standing
        document.deleted_at = None
        version = VersionRow(DocumentRef(document_id, len(document.versions) + 1), new, acl_class)
        if new.approval == APPROVED:  # whoever says so at import has approved it
            version.approval, version.approved_by, version.approved_at = APPROVED, subject, self._clock()
        document.versions.append(version)
        return version

    def _is_used(self, kb: KnowledgeBaseRow, acl_class: int) -> bool:
        """Whether a live document has this class now."""
        return any(
            (document.kb_id, document.acl_class, document.deleted) == (kb.kb_id, acl_class, False)
            for document in self._documents.values()
        )

    def _new_task(
        self,
        kind: TaskKind,
        kb: KnowledgeBaseRow,
        deadline_s: float,
        *,
        subject: str = "",
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
            subject=subject,
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

    async def accept_release(
        self, tenant: str, knowledge_base: str, deadline_s: float, *, act: Act | None = None
    ) -> Accepted:
        kb = self._kb_named(tenant, knowledge_base)
        if kb is None:
            raise KnowledgeBaseNotFound()
        task = self._new_task(TaskKind.RELEASE, kb, deadline_s, subject="" if act is None else act.subject)
        return Accepted(task.task_id, (), task.promised_release_id)

    async def claim(
        self, worker: str, lease_s: float, attempts: int, wait_s: float = WAIT_S
    ) -> TaskClaim | None:
        now = self._clock()
        for task in tuple(self._tasks.values()):
            self._end_if_hopeless(task, now, attempts, wait_s)
        found = next_task(tuple(self._tasks.values()), now)
        return None if found is None else self._take(found, now + lease_s)

    def _end_if_hopeless(self, task: TaskRow, now: float, attempts: int, wait_s: float) -> None:
        """Nobody may claim it again: it was cancelled, is of somebody revoked, out of time or of attempts, or
        too old.
        """
        if not is_unowned(task, now):
            return
        if task.cancel_requested:
            self._end(task, CANCELLED)
        elif self._is_gone(task.tenant, task.subject):
            self._end(task, ASKER_REVOKED)
        elif work_left_s(task) <= 0:
            self._end(task, out_of_time(task.trouble))
        elif task.created_at <= now - wait_s:
            self._end(task, waited_too_long(task.trouble))
        elif task.attempts >= attempts:
            self._end(task, out_of_attempts(task.attempts, task.stage, task.trouble))

    def _take(self, task: TaskRow, lease_until: float) -> TaskClaim:
        check_task_transition(task.state, TaskState.RUNNING)
        task.deadline_at = self._clock() + work_left_s(task)
        task.state = TaskState.RUNNING
        task.fence += 1
        task.attempts += 1
        task.lease_until = lease_until
        task.updated_at = task.claimed_at = self._clock()
        task.not_before = None
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
            put_offs=task.put_offs,
            trouble=task.trouble,
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
            code = ending.code or state.value.lower()
            self._abandon(task.task_id, code)
            self._abandon_versions(task, f"{code}: {ending.detail or 'its task ended before'}")

    def _abandon_versions(self, task: TaskRow, error: str) -> None:
        """Fails what it leaves unbuilt, but for versions that another live task will build."""
        live = [other for other in self._tasks.values() if other is not task and other.state in _LIVE]
        wanted = {ref for other in live for ref in other.refs}
        for ref in task.refs:
            version = self._version(ref)
            if ref not in wanted and version.state not in _BUILT_OR_NOT:
                version.state, version.error = VersionState.FAILED, error

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
        self._return(self._held(claim))

    async def put_off(self, claim: TaskClaim, trouble: str, rest_s: float) -> None:
        task = self._held(claim)
        self._return(task)
        task.not_before, task.trouble = self._clock() + rest_s, trouble
        task.put_offs += 1

    def _return(self, task: TaskRow) -> None:
        """To the waiting ones. Whoever said so didn't vanish: the start is no attempt."""
        check_task_transition(task.state, TaskState.PENDING)
        task.state = TaskState.PENDING
        task.attempts -= 1
        task.lease_until = 0.0
        task.updated_at = self._clock()

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None:
        task = self._tasks.get(task_id)
        if task is None or task.tenant != tenant:
            return None
        return self._task_record(task, tuple(self._task_document(ref) for ref in task.refs))

    async def tasks(self, tenant: str, query: TaskQuery) -> list[TaskRecord]:
        mine = [task for task in reversed(self._tasks.values()) if task.tenant == tenant]
        if query.before is not None:
            places = [task.task_id for task in mine]
            if query.before not in places:
                raise InvalidField("before is the id of a task")
            mine = mine[places.index(query.before) + 1 :]
        found = [self._task_record(task, ()) for task in mine]
        return [record for record in found if _answers(record, query)][: query.limit]

    def _task_record(self, task: TaskRow, documents: tuple[TaskDocument, ...]) -> TaskRecord:
        rests = task.state is TaskState.PENDING and task.not_before is not None
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
            documents=documents,
            release_id=task.release_id or task.promised_release_id,
            created_at=task.created_at,
            updated_at=task.updated_at,
            target=task.target,
            report=task.report,
            knowledge_base=self._knowledge_bases[task.kb_id].name,
            retry_at=task.not_before if rests else None,
            trouble=task.trouble if rests else None,
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
            self._end(task, CANCELLED)
        else:
            task.cancel_requested = True
        return True

    async def purge(self, keys_s: float, tasks_s: float) -> int:
        now = self._clock()
        self._answers = {key: kept for key, kept in self._answers.items() if kept.at >= now - keys_s}
        makers: dict[DocumentRef, str] = {}
        for task in self._tasks.values():
            for ref in task.refs:
                makers.setdefault(ref, task.task_id)
        named = {*makers.values(), *(release.task_id for release in self._releases.values())}
        old = [
            task.task_id
            for task in self._tasks.values()
            if task.state not in _LIVE and task.updated_at < now - tasks_s and task.task_id not in named
        ]
        for task_id in old:
            del self._tasks[task_id]
        return len(old)


def _answers(record: TaskRecord, query: TaskQuery) -> bool:
    asked = (query.knowledge_base, query.state, query.kind)
    there = (record.knowledge_base, record.state, record.kind)
    return all(want in {None, have} for want, have in zip(asked, there, strict=True))


def document_id_of(kb: KnowledgeBaseRow, source: str) -> str:
    return stable_hash("document", kb.tenant, kb.kb_id, source)
