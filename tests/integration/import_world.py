"""A small world around the import path: real parts or twins, and places where a test can break them."""

import asyncio
import functools
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from gateway.access.authorizer import AccessCatalog
from gateway.access.classes import Acl
from gateway.access.scope import AccessScope
from gateway.adapters.memory.models import FixedEmbedder
from gateway.admission.bulkhead import Bulkhead
from gateway.context import Deadline
from gateway.ingest.building import build_document
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.cleanup import CleanupWork
from gateway.ingest.document import BuiltDocument
from gateway.ingest.embedding import TextVectors
from gateway.ingest.erasure import AnswerErasure
from gateway.ingest.governance import Governance, MoveStore
from gateway.ingest.importing import ImportWork, ReleaseWork
from gateway.ingest.mover import MoveWork
from gateway.ingest.objects import ObjectStore
from gateway.ingest.pipeline import ImportPipeline
from gateway.ingest.reclaimer import ReclaimWork
from gateway.ingest.references import ReclaimPolicy, ReclaimStore, ReferenceStore, RemainsStore
from gateway.ingest.releaser import Releaser
from gateway.ingest.removal import Removal
from gateway.ingest.task import TaskClaim, TaskKind, TaskRecord, TaskWork
from gateway.ingest.uploads import Accepted, ImportRequest, NewDocument
from gateway.ingest.validator import Validator
from gateway.ingest.worker import Worker
from gateway.release.catalog import ReleaseCatalog
from gateway.release.model import EmbeddingSpace, ReleaseRecord, RetrievalConfig, RetrievalRelease
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Vector
from gateway.retrieval.lexicon import Lexicon
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import ChunkReader, ChunkWriter
from gateway.stream.revocation import RevocationCatalog

CONFIG = RetrievalConfig("open/1", w_similarity=1.0, w_coverage=1.0, bias=0.0)
#: how long what a rollback may want is kept
WINDOW_S = 3600.0
TENANT = "acme"
KB = "handbook"
STAFF = Acl.parse(["group:staff"], [])
LEADS = Acl.parse(["group:leads"], [])

#: three documents of two sections each
TEXTS = {
    name: f"# {name}\n\nThe {name} rule applies to everyone.\n\n## Details of {name}\n\n"
    + f"Each {name} has an owner, a limit and a date. " * 12
    for name in ("travel", "refund", "access")
}


class Catalog(
    AccessCatalog,
    ReleaseCatalog,
    TaskStore,
    VersionStore,
    ReleaseStore,
    RevocationCatalog,
    RemainsStore,
    ReferenceStore,
    ReclaimStore,
    Governance,
    MoveStore,
    Lexicon,
    Protocol,
):
    """The catalog's ports that an import touches or a test looks through."""


class Vectors(ChunkReader, ChunkWriter, Protocol):
    """Both ports of the vector store."""


class Clock:
    """The real time, moved forward by a test."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


class RecordingEmbedder(FixedEmbedder):
    """Remembers every text it was given."""

    def __init__(self, space_id: str = "fixed-32-v1", max_sensitivity: int = 3) -> None:
        super().__init__(space_id=space_id, max_sensitivity=max_sensitivity)
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        self.texts += texts
        return await super().embed(texts, deadline)


class DirectParser:
    """A DocumentParser without a child process."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        return build_document(source, media_type, content)


class Altered:
    """A part whose named methods are replaced; a replacement gets the real method first."""

    def __init__(self, part: object, **methods: Callable[..., Awaitable[Any]]) -> None:
        self._part = part
        self._methods = methods

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._part, name)
        replacement = self._methods.get(name)
        return real if replacement is None else functools.partial(replacement, real)


class Crash(BaseException):
    """The process is gone: no cleanup of ours may run for it."""


class Fuse:
    """Counts the calls of every part behind it, and ends the work at one of them.

    ``crash``: the call and all later ones never happen. Otherwise ``work`` is cancelled and the call begins,
    as when a process is told to stop.
    """

    def __init__(self, at: int | None = None, *, crash: bool = True) -> None:
        self._at = at
        self._crash = crash
        self.calls = 0
        self.work: asyncio.Task[None] | None = None

    def wrap(self, part: object) -> Any:
        return _Fused(part, self)

    def pass_through(self) -> None:
        self.calls += 1
        if self._at is None:
            return
        if self._crash and self.calls >= self._at:
            raise Crash
        if not self._crash and self.calls == self._at:
            assert self.work is not None
            self.work.cancel()


class _Fused:
    def __init__(self, part: object, fuse: Fuse) -> None:
        self._part = part
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._part, name)
        return functools.partial(self._call, real) if asyncio.iscoroutinefunction(real) else real

    async def _call(self, real: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        self._fuse.pass_through()
        return await real(*arguments, **named)


@dataclass(frozen=True)
class Dump:
    """All rows of a revision as readers find them: each chunk's fields and two projections of its vector."""

    rows: tuple[tuple[Chunk, tuple[float, ...]], ...]

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for chunk, _ in self.rows]

    @property
    def contents(self) -> list[str]:
        return [chunk.content for chunk in self.chunks]

    @property
    def sources(self) -> set[str]:
        return {chunk.source_uri.removeprefix("file:") for chunk in self.chunks}

    def without_revision(self, *but: str) -> list[tuple[Any, ...]]:
        """What is the same in every revision of the same documents; ``but`` leaves sources out."""
        own = {"row_id", "kb_revision", "revocation_epoch"}
        names = [field.name for field in fields(Chunk) if field.name not in own]
        return [
            (*(getattr(chunk, name) for name in names), *vector)
            for chunk, vector in self.rows
            if chunk.source_uri.removeprefix("file:") not in but
        ]


class ImportWorld:
    """One import path over the given parts. ``real``: SQLite, Milvus Lite, a folder; else the twins."""

    def __init__(
        self, catalog: Catalog, vectors: Vectors, objects: ObjectStore, clock: Clock, *, real: bool
    ) -> None:
        self.catalog = catalog
        self.vectors = vectors
        self.objects = objects
        self.clock = clock
        self.real = real
        self.embedder = RecordingEmbedder()
        self.parser = DirectParser()
        self.config = CONFIG
        self.policy = ReclaimPolicy(WINDOW_S, releases=1)
        self.answers: AnswerErasure | None = None

    @property
    def space(self) -> EmbeddingSpace:
        return self.embedder.space

    def releaser(
        self,
        catalog: Any = None,
        vectors: Any = None,
        objects: Any = None,
        embedder: Any = None,
        parser: Any = None,
        bulkhead: Bulkhead | None = None,
    ) -> Releaser:
        catalog, vectors = catalog or self.catalog, vectors or self.vectors
        return Releaser(
            catalog,
            catalog,
            catalog,
            objects or self.objects,
            parser or self.parser,
            vectors,
            Validator(vectors, vectors),
            self.text_vectors(objects, embedder, bulkhead),
            self.config,
        )

    def removal(self, catalog: Any = None, objects: Any = None, window_s: float = WINDOW_S) -> Removal:
        return Removal(catalog or self.catalog, objects or self.objects, window_s)

    def text_vectors(
        self, objects: Any = None, embedder: Any = None, bulkhead: Bulkhead | None = None
    ) -> TextVectors:
        bulkhead = bulkhead or Bulkhead("offline_embedding", 1, 60_000)
        return TextVectors(objects or self.objects, embedder or self.embedder, bulkhead)

    def worker(
        self,
        *,
        catalog: Any = None,
        vectors: Any = None,
        objects: Any = None,
        embedder: Any = None,
        parser: Any = None,
        bulkhead: Bulkhead | None = None,
        lease_s: float = 600.0,
        attempts: int = 5,
        poll_s: float = 1.0,
    ) -> Worker:
        """A worker over this world's parts, or over what a test puts in their places."""
        catalog, objects = catalog or self.catalog, objects or self.objects
        pipeline = ImportPipeline(
            catalog,
            catalog,
            objects,
            parser or self.parser,
            self.text_vectors(objects, embedder, bulkhead),
        )
        releaser = self.releaser(catalog, vectors, objects, embedder, parser, bulkhead)
        works: dict[TaskKind, TaskWork] = {
            TaskKind.IMPORT: ImportWork(pipeline, releaser),
            TaskKind.RELEASE: ReleaseWork(releaser),
            TaskKind.MOVE: MoveWork(catalog, catalog, catalog, objects, vectors or self.vectors),
            TaskKind.CLEANUP: CleanupWork(
                catalog,
                catalog,
                objects,
                vectors or self.vectors,
                self.removal(catalog, objects),
                self.answers,
            ),
            TaskKind.RECLAIM: ReclaimWork(catalog, catalog, vectors or self.vectors, self.policy),
        }
        return Worker("worker", catalog, works, lease_s=lease_s, attempts=attempts, poll_s=poll_s)

    def fused_worker(self, fuse: Fuse) -> Worker:
        return self.worker(
            catalog=fuse.wrap(self.catalog),
            vectors=fuse.wrap(self.vectors),
            objects=fuse.wrap(self.objects),
            embedder=fuse.wrap(self.embedder),
            parser=fuse.wrap(self.parser),
        )

    async def accept(
        self,
        texts: Mapping[str, str],
        *,
        acl: Acl = STAFF,
        activate: bool = True,
        allow_partial: bool = False,
        deadline_s: float = 3600.0,
        **document: Any,
    ) -> Accepted:
        """Originals into the store, then the task; a source without an ending is Markdown."""
        documents = []
        for name, text in texts.items():
            content = text.encode()
            digest = hashlib.sha256(content).hexdigest()
            await self.objects.put(f"originals/{digest}", content)
            source = name if "." in name else f"{name}.md"
            documents.append(
                NewDocument(
                    source=source,
                    uri=f"file:{source}",
                    media_type="",
                    original_key=f"originals/{digest}",
                    content_sha256=digest,
                    size_bytes=len(content),
                    acl=acl,
                    **document,
                )
            )
        return await self.catalog.accept_import(
            ImportRequest(
                tenant=TENANT,
                knowledge_base=KB,
                subject="importer",
                documents=tuple(documents),
                activate=activate,
                allow_partial=allow_partial,
                deadline_s=deadline_s,
            )
        )

    async def claim(self, lease_s: float = 600.0, attempts: int = 5) -> TaskClaim:
        claim = await self.catalog.claim("worker", lease_s, attempts)
        assert claim is not None
        return claim

    async def work(self, accepted: Accepted, worker: Worker | None = None) -> TaskRecord:
        """Claims the task and runs it once; clean-ups and moves that come first are done as well."""
        while (claim := await self.claim()).task_id != accepted.task_id:
            await self.worker().work(claim)
        await (worker or self.worker()).work(claim)
        return await self.task(accepted)

    async def task(self, accepted: Accepted) -> TaskRecord:
        task = await self.catalog.task(TENANT, accepted.task_id)
        assert task is not None
        return task

    async def learn(self, texts: Mapping[str, str], **upload: Any) -> TaskRecord:
        return await self.work(await self.accept(texts, **upload))

    async def build_release(self, worker: Worker | None = None) -> TaskRecord:
        """A release task, run once; nothing is activated."""
        return await self.work(await self.catalog.accept_release(TENANT, KB, 3600.0), worker)

    async def kb_id(self) -> str:
        stamp = await self.catalog.tenant_stamp(TENANT)
        return stamp.knowledge_bases[0].kb_id

    async def active(self) -> RetrievalRelease:
        release = await self.catalog.active(TENANT, await self.kb_id())
        assert release is not None
        return release

    async def releases(self) -> list[ReleaseRecord]:
        return await self.catalog.releases(TENANT, KB)

    async def rows_left(self, revision: str) -> int:
        return await self.vectors.count(self.space, revision)

    async def dump(self, release: RetrievalRelease | None = None) -> Dump:
        """Every row of a release, through dense and fetch; they must agree."""
        release = release or await self.active()
        classes = await self.catalog.acl_classes(TENANT, release.kb_id)
        scope = AccessScope(
            tenant=TENANT,
            kb_id=release.kb_id,
            knowledge_base=KB,
            acl_revision=0,
            revocation_epoch=0,
            incarnation="test",
            principals=frozenset({"test"}),
            permitted_classes=frozenset(acl_class.number for acl_class in classes),
        )
        query = ScopedQuery(scope, release, int(time.time()))
        projections: dict[str, list[float]] = {}
        chunks = {}
        for axis in (0, 1):
            probe = tuple(1.0 if at == axis else 0.0 for at in range(self.space.dimension))
            for hit in await self.vectors.dense(query, probe, 10_000, Deadline.after(20_000)):
                projections.setdefault(hit.chunk.chunk_id, []).append(round(hit.score, 4))
                chunks[hit.chunk.chunk_id] = hit.chunk
        fetched = await self.vectors.fetch(query, list(chunks), Deadline.after(20_000))
        assert sorted(fetched, key=lambda chunk: chunk.chunk_id) == [chunks[i] for i in sorted(chunks)]
        assert len(chunks) == await self.vectors.count(release.space, release.kb_revision)
        rows = [
            (chunk, tuple(projections[chunk.chunk_id]))
            for chunk in sorted(fetched, key=lambda c: (c.source_uri, c.document_version, c.chunk_index))
        ]
        return Dump(tuple(rows))
