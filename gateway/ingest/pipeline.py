"""The import pipeline: one document version from its original to READY."""

import hashlib

from anyio import to_thread

from gateway.errors import DocumentRejected, InvariantViolated
from gateway.ingest import chunkfile
from gateway.ingest.building import DocumentParser
from gateway.ingest.catalog import TaskStore, VersionStore
from gateway.ingest.document import BuiltDocument
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.originals import original
from gateway.ingest.reasons import DOCUMENT_REASONS
from gateway.ingest.task import TaskClaim
from gateway.ingest.vectors import text_hash
from gateway.ingest.version import BuiltVersion, ManifestEntry, VectorPlace, VersionJob
from gateway.release.model import VersionState
from gateway.retrieval.chunk import chunk_id, embedded_text, stable_hash


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
        self._parser = parser
        self._vectors = vectors

    async def run(self, claim: TaskClaim) -> int:
        """Builds every unfinished version of the task; returns how many of its documents have failed,
        those of earlier attempts included.
        """
        jobs = await self._versions.unfinished_versions(claim)
        for done, job in enumerate(jobs):
            await self._tasks.progress(claim, "building", done, len(jobs))
            try:
                await self._build(claim, job)
            except DocumentRejected as error:
                await self._versions.fail_version(claim, job.ref, error.reason, error.detail)
        await self._tasks.progress(claim, "built", len(jobs), len(jobs))
        task = await self._tasks.task(claim.tenant, claim.task_id)
        if task is None:
            raise InvariantViolated("a claimed task is missing")
        return sum(document.state != VersionState.READY for document in task.documents)

    async def _build(self, claim: TaskClaim, job: VersionJob) -> None:
        if job.sensitivity > self._vectors.max_sensitivity:
            raise DocumentRejected("too_sensitive", DOCUMENT_REASONS["too_sensitive"])
        if job.state is not VersionState.VALIDATING:  # an earlier attempt may have come that far
            await self._versions.advance_version(claim, job.ref, VersionState.BUILDING)
        content = await original(self._objects, job.original_key)
        built = await self._parser.build(job.source, job.media_type, content)
        if not built.passages:
            raise DocumentRejected("blank", "no text was found in it")
        manifest, texts = await to_thread.run_sync(self._named, claim, job, built)
        places = await self._embed_new(job, texts)
        chunks = await to_thread.run_sync(chunkfile.dump, built)
        # Named by its content: a worker that comes back late, of another version, overwrites nothing.
        digest = hashlib.sha256(chunks).hexdigest()[:32]
        chunks_key = f"chunks/{job.ref.document_id}/{job.ref.document_version}-{digest}.json"
        await self._objects.put(chunks_key, chunks)
        await self._versions.advance_version(claim, job.ref, VersionState.VALIDATING)
        if await self._objects.get(chunks_key) != chunks:
            raise InvariantViolated("a chunk file reads back differently")
        await self._versions.complete_version(
            claim,
            BuiltVersion(
                ref=job.ref,
                title=built.title,
                parser_version=built.parser_version,
                splitter_version=built.splitter_version,
                chunks_key=chunks_key,
                manifest=manifest,
                space_id=self._vectors.space.space_id,
                new_vectors=places,
                valid_from=built.valid_from,
                valid_until=built.valid_until,
                risk=built.risk,
            ),
        )

    def _named(
        self, claim: TaskClaim, job: VersionJob, built: BuiltDocument
    ) -> tuple[tuple[ManifestEntry, ...], dict[str, str]]:
        """The manifest, and each text to embed under its hash."""
        manifest = self._manifest(claim, job, built)
        texts = {
            entry.text_hash: embedded_text(built.title, passage.section, passage.content)
            for entry, passage in zip(manifest, built.passages, strict=True)
        }
        return manifest, texts

    def _manifest(self, claim: TaskClaim, job: VersionJob, built: BuiltDocument) -> tuple[ManifestEntry, ...]:
        return tuple(
            ManifestEntry(
                chunk_index=index,
                chunk_id=chunk_id(
                    claim.tenant,
                    claim.kb_id,
                    job.ref.document_id,
                    job.ref.document_version,
                    built.parser_version,
                    built.splitter_version,
                    index,
                ),
                content_hash=stable_hash(passage.content),
                text_hash=text_hash(embedded_text(built.title, passage.section, passage.content)),
            )
            for index, passage in enumerate(built.passages)
        )

    async def _embed_new(self, job: VersionJob, texts: dict[str, str]) -> dict[str, VectorPlace]:
        """Embeds the texts that have no vector yet, or lost theirs; returns where the new vectors lie."""
        known = await self._versions.vector_places(self._vectors.space.space_id, tuple(texts))
        files = self._vectors.files()
        lost = set(await self._vectors.lost(known, files))
        wanted = {name: text for name, text in texts.items() if name not in known or name in lost}
        return await self._vectors.complete(job.ref, wanted, known, files)
