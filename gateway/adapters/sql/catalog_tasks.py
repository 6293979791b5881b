"""The catalog as importers and workers see it: tasks, versions, documents."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from gateway.access.act import Act
from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import (
    acts,
    documents,
    imports,
    purging,
    restoring,
    task_records,
    tasks,
    versions,
)
from gateway.adapters.sql.catalog_part import SqlPart
from gateway.ingest.task import WAIT_S, Ending, TaskClaim, TaskQuery, TaskRecord
from gateway.ingest.uploads import Accepted, DocumentRecord, ImportRequest
from gateway.ingest.version import BuiltVersion, VectorPlace, VersionJob
from gateway.release.model import (
    VersionState,
)


class SqlTasks(SqlPart):
    """Implements TaskStore and VersionStore."""

    # tasks

    async def accept_import(self, request: ImportRequest) -> Accepted:
        return await self._act(
            request.act, acts.kept_acceptance, lambda c, now: imports.accept(c, now, request)
        )

    async def accept_release(
        self, tenant: str, knowledge_base: str, deadline_s: float, *, act: Act | None = None
    ) -> Accepted:
        def change(c: Connection, now: float) -> Accepted:
            subject = "" if act is None else act.subject
            return tasks.accept_release(c, now, tenant, knowledge_base, deadline_s, subject)

        return await self._act(act, acts.kept_acceptance, change)

    async def claim(
        self, worker: str, lease_s: float, attempts: int, wait_s: float = WAIT_S
    ) -> TaskClaim | None:
        if not await self._look(restoring.is_confirmed):
            return None
        await self._write(lambda c, now: tasks.end_the_hopeless(c, now, attempts, wait_s))
        return await self._write(
            lambda c, now: tasks.claim(c, now, worker, lease_s, attempts, wait_s), loosely=True
        )

    async def heartbeat(self, claim: TaskClaim, lease_s: float) -> bool:
        return await self._write(lambda c, now: tasks.heartbeat(c, now, claim, lease_s))

    async def progress(self, claim: TaskClaim, stage: str, done: int, total: int) -> None:
        await self._write(lambda c, now: tasks.progress(c, now, claim, stage, done, total))

    async def finish(self, claim: TaskClaim, ending: Ending) -> None:
        await self._write(lambda c, now: tasks.finish(c, now, claim, ending))

    async def release_claim(self, claim: TaskClaim) -> None:
        await self._write(lambda c, now: tasks.release_claim(c, now, claim))

    async def put_off(self, claim: TaskClaim, trouble: str, rest_s: float) -> None:
        await self._write(lambda c, now: tasks.put_off(c, now, claim, trouble, rest_s))

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None:
        return await self._read(lambda c: task_records.one(c, tenant, task_id))

    async def tasks(self, tenant: str, query: TaskQuery) -> list[TaskRecord]:
        return await self._browse(lambda c: task_records.listed(c, tenant, query))

    async def request_cancel(self, tenant: str, task_id: str) -> bool:
        return await self._write(lambda c, now: tasks.request_cancel(c, now, tenant, task_id))

    async def purge(self, keys_s: float, tasks_s: float) -> int:
        return await purging.purge(self._database, keys_s, tasks_s)

    # versions and documents

    async def unfinished_versions(self, claim: TaskClaim) -> list[VersionJob]:
        return await self._browse(lambda c: versions.unfinished(c, claim))

    async def advance_versions(
        self, claim: TaskClaim, refs: Sequence[DocumentRef], state: VersionState
    ) -> None:
        await self._write(lambda c, now: versions.advance(c, claim, refs, state))

    async def complete_versions(self, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
        await self._write(lambda c, now: versions.complete(c, now, claim, built))

    async def fail_version(self, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None:
        await self._write(lambda c, now: versions.fail(c, claim, ref, reason, detail))

    async def vector_places(self, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]:
        return await self._browse(lambda c: versions.places(c, space_id, text_hashes))

    async def add_vector_places(
        self, claim: TaskClaim, space_id: str, places: Mapping[str, VectorPlace]
    ) -> None:
        await self._write(lambda c, now: versions.add_places(c, now, claim, space_id, places))

    async def documents(
        self, tenant: str, knowledge_base: str, *, limit: int | None = None, after: str | None = None
    ) -> list[DocumentRecord]:
        return await self._browse(lambda c: documents.live(c, tenant, knowledge_base, limit, after))

    async def document(self, tenant: str, document_id: str) -> DocumentRecord | None:
        return await self._look(lambda c: documents.one(c, tenant, document_id))

    async def delete_document(self, tenant: str, document_id: str) -> str | None:
        return await self._write(lambda c, now: documents.delete(c, now, tenant, document_id), durable=True)
