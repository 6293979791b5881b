"""The tasks of the in-memory catalog: lease, fence, attempts, cancel."""

import json

from gateway.access.act import Act
from gateway.access.authorizer import DocumentRef
from gateway.adapters.memory.catalog_rows import (
    CatalogRows,
    KnowledgeBaseRow,
    TaskRow,
    fresh_id,
)
from gateway.adapters.memory.turns import is_unowned, next_task, work_left_s
from gateway.errors import IllegalTransition, InvalidField, KnowledgeBaseNotFound
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
from gateway.ingest.uploads import Accepted
from gateway.release.model import VersionState

_LIVE = frozenset({TaskState.PENDING, TaskState.RUNNING})
_BUILT_OR_NOT = frozenset({VersionState.READY, VersionState.FAILED})


class TaskRows(CatalogRows):
    """``TaskStore`` but for imports. Workers poll the tasks themselves, so the twin needs no outbox."""

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
