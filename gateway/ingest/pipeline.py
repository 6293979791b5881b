"""The import pipeline: one document version from its original to READY."""

from collections.abc import Sequence

from gateway.admission.bulkhead import Bulkhead
from gateway.context import Deadline
from gateway.errors import DocumentRejected, InvariantViolated
from gateway.ingest import chunkfile
from gateway.ingest.catalog import (
    BuiltVersion,
    DocumentParser,
    ManifestEntry,
    ObjectStore,
    TaskStore,
    VectorPlace,
    VersionJob,
    VersionStore,
)
from gateway.ingest.document import BuiltDocument
from gateway.ingest.task import TaskClaim
from gateway.ingest.vectors import pack, text_hash
from gateway.release.model import VersionState
from gateway.retrieval.chunk import chunk_id, embedded_text, stable_hash
from gateway.retrieval.embedding import Embedder, Vector

_EMBED_BATCH = 64
_BATCH_CAP_MS = 60_000


class ImportPipeline:
    """Replays are harmless: ids come from the input, and objects are written whole under their names."""

    def __init__(
        self,
        tasks: TaskStore,
        versions: VersionStore,
        objects: ObjectStore,
        parser: DocumentParser,
        embedder: Embedder,
        bulkhead: Bulkhead,
    ) -> None:
        """``bulkhead`` bounds the batches that are embedded at a time."""
        self._tasks = tasks
        self._versions = versions
        self._objects = objects
        self._parser = parser
        self._embedder = embedder
        self._bulkhead = bulkhead

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
        if job.state is not VersionState.VALIDATING:  # an earlier attempt may have come that far
            await self._versions.advance_version(claim, job.ref, VersionState.BUILDING)
        original = await self._objects.get(job.original_key)
        built = await self._parser.build(job.source, job.media_type, original)
        if not built.passages:
            raise DocumentRejected("blank", "no text was found in it")
        manifest = self._manifest(claim, job, built)
        texts = {
            entry.text_hash: embedded_text(built.title, passage.section, passage.content)
            for entry, passage in zip(manifest, built.passages, strict=True)
        }
        places = await self._embed_new(job, texts)
        chunks_key = f"chunks/{job.ref.document_id}/{job.ref.document_version}.json"
        await self._objects.put(chunks_key, chunkfile.dump(built))
        await self._versions.advance_version(claim, job.ref, VersionState.VALIDATING)
        await self._check_stored(chunks_key, built)
        await self._versions.complete_version(
            claim,
            BuiltVersion(
                ref=job.ref,
                title=built.title,
                parser_version=built.parser_version,
                splitter_version=built.splitter_version,
                chunks_key=chunks_key,
                manifest=manifest,
                space_id=self._embedder.space.space_id,
                new_vectors=places,
            ),
        )

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
                text_hash=text_hash(
                    self._embedder.space.space_id,
                    embedded_text(built.title, passage.section, passage.content),
                ),
            )
            for index, passage in enumerate(built.passages)
        )

    async def _embed_new(self, job: VersionJob, texts: dict[str, str]) -> dict[str, VectorPlace]:
        """Embeds the texts that have no vector yet; returns where the new vectors lie."""
        space = self._embedder.space.space_id
        known = await self._versions.vector_places(space, tuple(texts))
        missing = [name for name in texts if name not in known]
        if not missing:
            return {}
        vectors = await self._embed([texts[name] for name in missing])
        ref = job.ref
        key = f"vectors/{space}/{ref.document_id}/{ref.document_version}-{stable_hash(*missing)}.f32"
        await self._objects.put(key, pack(vectors))
        return {name: VectorPlace(key, position) for position, name in enumerate(missing)}

    async def _embed(self, texts: Sequence[str]) -> list[Vector]:
        vectors: list[Vector] = []
        for start in range(0, len(texts), _EMBED_BATCH):
            batch = texts[start : start + _EMBED_BATCH]
            deadline = Deadline.after(_BATCH_CAP_MS)
            with await self._bulkhead.acquire(deadline):
                vectors += await self._embedder.embed(batch, deadline)
        if len(vectors) != len(texts):
            raise InvariantViolated("the embedder gave another number of vectors than it got texts")
        return vectors

    async def _check_stored(self, chunks_key: str, built: BuiltDocument) -> None:
        if chunkfile.load(await self._objects.get(chunks_key)) != built:
            raise InvariantViolated("a chunk file reads back differently")
