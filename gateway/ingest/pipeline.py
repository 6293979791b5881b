"""The import pipeline: one document version from its original to READY."""

import hashlib
import re
from collections.abc import Mapping, Sequence

import anyio.lowlevel
from anyio import to_thread

from gateway.admission.bulkhead import Bulkhead
from gateway.context import Deadline
from gateway.errors import DOCUMENT_REASONS, DocumentRejected, InvariantViolated, NotFound
from gateway.ingest import chunkfile
from gateway.ingest.building import DocumentParser
from gateway.ingest.catalog import TaskStore, VersionStore
from gateway.ingest.document import BuiltDocument
from gateway.ingest.objects import ObjectStore
from gateway.ingest.task import TaskClaim
from gateway.ingest.vectors import VectorFiles, pack, text_hash
from gateway.ingest.version import BuiltVersion, ManifestEntry, VectorPlace, VersionJob
from gateway.release.model import VersionState
from gateway.retrieval.chunk import chunk_id, embedded_text, stable_hash
from gateway.retrieval.embedding import Embedder, Vector

_EMBED_BATCH = 64
_BATCH_CAP_MS = 60_000
#: how an original's key ends: the SHA-256 of the bytes that were uploaded
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        if job.sensitivity > self._embedder.max_sensitivity:
            raise DocumentRejected("too_sensitive", DOCUMENT_REASONS["too_sensitive"])
        if job.state is not VersionState.VALIDATING:  # an earlier attempt may have come that far
            await self._versions.advance_version(claim, job.ref, VersionState.BUILDING)
        original = await self._original(job.original_key)
        built = await self._parser.build(job.source, job.media_type, original)
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
                space_id=self._embedder.space.space_id,
                new_vectors=places,
            ),
        )

    async def _original(self, key: str) -> bytes:
        """Raises DocumentRejected when the bytes aren't those that were uploaded."""
        try:
            content = await self._objects.get(key)
        except NotFound as error:
            raise DocumentRejected("corrupt", "its original is lost; upload it again") from error
        name = key.rpartition("/")[2]
        if _SHA256.fullmatch(name) and await to_thread.run_sync(_sha256, content) != name:
            raise DocumentRejected("corrupt", "its original was damaged in the store; upload it again")
        return content

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
                text_hash=text_hash(
                    self._embedder.space.space_id,
                    embedded_text(built.title, passage.section, passage.content),
                ),
            )
            for index, passage in enumerate(built.passages)
        )

    async def _embed_new(self, job: VersionJob, texts: dict[str, str]) -> dict[str, VectorPlace]:
        """Embeds the texts that have no vector yet; returns where the new vectors lie.

        Vectors that were lost with their file are computed again, into the places the catalog knows.
        """
        space = self._embedder.space.space_id
        known = await self._versions.vector_places(space, tuple(texts))
        await self._mend(texts, known)
        missing = [name for name in texts if name not in known]
        if not missing:
            return {}
        vectors = await self._embed([texts[name] for name in missing])
        ref = job.ref
        version = f"{ref.document_version}-{await to_thread.run_sync(stable_hash, *missing)}"
        key = f"vectors/{space}/{ref.document_id}/{version}.f32"
        await self._objects.put(key, await to_thread.run_sync(pack, vectors))
        return {name: VectorPlace(key, position) for position, name in enumerate(missing)}

    async def _mend(self, texts: Mapping[str, str], known: Mapping[str, VectorPlace]) -> None:
        files = VectorFiles(self._objects, self._embedder.space.dimension)
        lost = []
        for name, place in known.items():
            await anyio.lowlevel.checkpoint()
            if not await files.holds(place):
                lost.append(name)
        if lost:
            vectors = await self._embed([texts[name] for name in lost])
            await files.put_back({known[name]: vector for name, vector in zip(lost, vectors, strict=True)})

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


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
