"""The import pipeline: the document versions of a task, from their originals to READY."""

from collections.abc import AsyncIterable, Mapping, Sequence

import anyio

from gateway.access.authorizer import DocumentRef
from gateway.errors import GatewayError, InvariantViolated
from gateway.ingest.building import DocumentParser
from gateway.ingest.catalog import TaskStore, VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.parsed import ParsedDocument, ParsedGroup
from gateway.ingest.reader import DocumentReader
from gateway.ingest.task import TaskClaim
from gateway.ingest.version import VectorPlace, VersionJob
from gateway.release.model import VersionState


class ImportPipeline:
    """Replays are harmless: ids come from the input, and objects are written whole under their names.

    What takes tens of milliseconds for thousands of passages runs in a thread: questions are answered
    on this loop.
    """

    def __init__(
        self,
        tasks: TaskStore,
        versions: VersionStore,
        objects: ObjectStore,
        parser: DocumentParser,
        vectors: TextVectors,
    ) -> None:
        self._tasks = tasks
        self._versions = versions
        self._objects = objects
        self._vectors = vectors
        self._reader = DocumentReader(versions, objects, parser, vectors.max_sensitivity)

    async def run(self, claim: TaskClaim) -> int:
        """Builds every unfinished version of the task; returns how many of its documents have failed,
        those of earlier attempts included.
        """
        jobs = await self._versions.unfinished_versions(claim)
        await self._tasks.progress(claim, "building", 0, len(jobs))
        await self._build(claim, jobs)
        await self._tasks.progress(claim, "built", len(jobs), len(jobs))
        task = await self._tasks.task(claim.tenant, claim.task_id)
        if task is None:
            raise InvariantViolated("a claimed task is missing")
        return sum(document.state != VersionState.READY for document in task.documents)

    async def _build(self, claim: TaskClaim, jobs: Sequence[VersionJob]) -> None:
        """While one group is stored, the next one is read."""
        trouble: GatewayError | None = None
        sender, groups = anyio.create_memory_object_stream[ParsedGroup]()
        with sender, groups:  # a cancel may land before the reader has begun, who closes it as well
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._reader.read, claim, jobs, sender)
                try:
                    await self._store_all(claim, groups, len(jobs))
                except GatewayError as error:
                    trouble = error
                    tasks.cancel_scope.cancel()
        if trouble is not None:
            raise trouble

    async def _store_all(self, claim: TaskClaim, groups: AsyncIterable[ParsedGroup], total: int) -> None:
        done = 0
        async for group in groups:
            if group.documents:
                await self._store(claim, group.documents)
            for job, error in group.rejected:
                await self._versions.fail_version(claim, job.ref, error.reason, error.detail)
            if group.trouble is not None:
                raise group.trouble
            done += len(group)
            await self._tasks.progress(claim, "building", done, total)

    async def _store(self, claim: TaskClaim, documents: Sequence[ParsedDocument]) -> None:
        """The group's files, and then its versions: a READY one's files are on the disk."""
        places = await self._embed_new(documents)
        await self._objects.put_all({document.chunks_key: document.chunks for document in documents})
        refs = [document.job.ref for document in documents]
        await self._versions.advance_versions(claim, refs, VersionState.VALIDATING)
        for document in documents:
            if await self._objects.get(document.chunks_key) != document.chunks:
                raise InvariantViolated("a chunk file reads back differently")
        space_id = self._vectors.space.space_id
        built = [document.version(space_id, places[document.job.ref]) for document in documents]
        await self._versions.complete_versions(claim, built)

    async def _embed_new(
        self, documents: Sequence[ParsedDocument]
    ) -> Mapping[DocumentRef, Mapping[str, VectorPlace]]:
        """Embeds the texts that have no vector yet, or lost theirs; returns where the new vectors lie."""
        texts = tuple(dict.fromkeys(name for document in documents for name in document.texts))
        known = await self._versions.vector_places(self._vectors.space.space_id, texts)
        files = self._vectors.files()
        lost = set(await self._vectors.lost(known, files))
        wanted = {
            document.job.ref: {n: t for n, t in document.texts.items() if n not in known or n in lost}
            for document in documents
        }
        return await self._vectors.complete_all(wanted, known, files)
