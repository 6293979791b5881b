"""The port to the import side of the catalog: tasks, versions, manifests, releases.

Each method is one transaction. Methods that take a claim raise StaleFence when another worker holds
the task by now, and every method raises CatalogUnavailable when the catalog can't answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.ingest.document import BuiltDocument
from gateway.ingest.task import TaskClaim, TaskRecord, TaskState
from gateway.release.model import (
    EmbeddingSpace,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
    RetrievalRelease,
    VersionState,
)


@dataclass(frozen=True, slots=True)
class NewDocument:
    """One uploaded file, its original already in the object store under ``original_key``.

    ``content_sha256`` is over the raw bytes. Times are whole seconds since the epoch.
    """

    source: str
    uri: str
    media_type: str
    original_key: str
    content_sha256: str
    size_bytes: int
    acl: Acl
    category: str = ""
    valid_from: int | None = None
    valid_until: int | None = None
    sensitivity: int = 0
    author: str = ""
    approval: str = "unreviewed"
    risk: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """One accepted upload. ``request_hash`` guards ``idempotency_key`` against other bodies."""

    tenant: str
    knowledge_base: str
    subject: str
    documents: tuple[NewDocument, ...]
    activate: bool
    allow_partial: bool
    deadline_s: float
    idempotency_key: str | None = None
    request_hash: str = ""


@dataclass(frozen=True, slots=True)
class AcceptedDocument:
    document_id: str
    document_version: int
    source: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """``release_id`` is reserved for a release task; its task names another one when it is not used."""

    task_id: str
    documents: tuple[AcceptedDocument, ...]
    release_id: str | None = None


@dataclass(frozen=True, slots=True)
class VersionJob:
    """A document version that still has to be built."""

    ref: DocumentRef
    source: str
    media_type: str
    original_key: str
    sensitivity: int
    state: VersionState


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One chunk of a version. ``text_hash`` is over the embedded text, ``content_hash`` over the raw."""

    chunk_index: int
    chunk_id: str
    content_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a text's vector lies: row ``position`` of the vector file ``object_key``."""

    object_key: str
    position: int


@dataclass(frozen=True, slots=True)
class BuiltVersion:
    """The outcome of building one version, recorded together with its READY state."""

    ref: DocumentRef
    title: str
    parser_version: str
    splitter_version: str
    chunks_key: str
    manifest: tuple[ManifestEntry, ...]
    space_id: str
    new_vectors: Mapping[str, VectorPlace]


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """A document version as a release takes it in. ``acl_class`` is the document's current class."""

    ref: DocumentRef
    title: str
    uri: str
    category: str
    valid_from: int | None
    valid_until: int | None
    sensitivity: int
    author: str
    approval: str
    risk: tuple[str, ...]
    acl_class: int
    parser_version: str
    splitter_version: str
    chunks_key: str
    manifest: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """A release being built: an immutable list of documents, fixed when the build began.

    ``manifest_hash`` covers every (chunk_id, content_hash, acl_class). ``unchanged_release`` is set
    when the active release has the same manifest, space and config: then nothing needs building.
    """

    release_id: str
    tenant: str
    kb_id: str
    knowledge_base: str
    kb_revision: str
    base_sequence: int
    revocation_epoch: int
    space: EmbeddingSpace
    config: RetrievalConfig
    manifest_hash: str
    documents: tuple[PlannedDocument, ...]
    unchanged_release: str | None

    def as_release(self) -> RetrievalRelease:
        """How the validator reads the revision before anyone else may."""
        return RetrievalRelease(
            release_id=self.release_id,
            tenant=self.tenant,
            kb_id=self.kb_id,
            knowledge_base=self.knowledge_base,
            kb_revision=self.kb_revision,
            sequence=self.base_sequence,
            space=self.space,
            collection=self.space.collection,
            config=self.config,
        )


@dataclass(frozen=True, slots=True)
class ClassTerms:
    """Term statistics of one ACL class in one revision: passages, and term -> passages with it."""

    acl_class: int
    passages: int
    frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Activation:
    knowledge_base: str
    knowledge_revision: str
    release_sequence: int


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A live document as its importer sees it; the version is the newest accepted one."""

    document_id: str
    knowledge_base: str
    source: str
    document_version: int
    state: VersionState
    title: str
    category: str
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    error: str | None
    created_at: float


class TaskStore(Protocol):
    async def accept_import(self, request: ImportRequest) -> Accepted:
        """Versions + task + outbox in one transaction; makes the knowledge base when it is new.

        Same tenant + knowledge base + source is a new version of the same document; identical
        bytes, metadata and ACL return the existing version. Raises IdempotencyMismatch, and
        Conflict when the importing knowledge base is revoked.
        """
        ...

    async def accept_release(self, tenant: str, knowledge_base: str, deadline_s: float) -> Accepted:
        """A release task; ``documents`` is empty. Raises KnowledgeBaseNotFound."""
        ...

    async def claim(self, worker: str, lease_s: float, attempts: int) -> TaskClaim | None:
        """The oldest task that is PENDING or whose lease ran out, at most one running per knowledge
        base. A task past its deadline or its attempts becomes FAILED instead of being claimed.
        """
        ...

    async def heartbeat(self, claim: TaskClaim, lease_s: float) -> bool:
        """Extends the lease; True when the task was asked to cancel."""
        ...

    async def progress(self, claim: TaskClaim, stage: str, done: int, total: int) -> None: ...

    async def finish(
        self, claim: TaskClaim, state: TaskState, code: str | None = None, detail: str | None = None
    ) -> None: ...

    async def release_claim(self, claim: TaskClaim) -> None:
        """Gives the task back at once (shutdown); it doesn't count as an attempt."""
        ...

    async def task(self, tenant: str, task_id: str) -> TaskRecord | None: ...

    async def request_cancel(self, tenant: str, task_id: str) -> bool:
        """False when there is no such task or it has ended."""
        ...


class VersionStore(Protocol):
    async def unfinished_versions(self, claim: TaskClaim) -> list[VersionJob]:
        """The task's versions that are not READY or FAILED, in order of acceptance."""
        ...

    async def advance_version(self, claim: TaskClaim, ref: DocumentRef, state: VersionState) -> None:
        """Any state but READY, which comes with the manifest. Raises IllegalTransition, NotFound."""
        ...

    async def complete_version(self, claim: TaskClaim, built: BuiltVersion) -> None:
        """Manifest, vector places and READY at once; replays change nothing."""
        ...

    async def fail_version(self, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None: ...

    async def vector_places(self, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]: ...

    async def documents(self, tenant: str, knowledge_base: str) -> list[DocumentRecord]:
        """Live documents, by source. Empty for an unknown knowledge base."""
        ...

    async def document(self, tenant: str, document_id: str) -> DocumentRecord | None: ...

    async def delete_document(self, tenant: str, document_id: str) -> bool:
        """Marks it deleted (blocked for every reader at once); False when there is none."""
        ...


class ReleaseStore(Protocol):
    async def begin_release(
        self, claim: TaskClaim, space: EmbeddingSpace, config: RetrievalConfig
    ) -> ReleasePlan:
        """Snapshot of the newest READY, not withdrawn version of each live, unrevoked document.

        Makes the release BUILDING with a fresh kb_revision; an unfinished one of the same task is
        marked FAILED first.
        """
        ...

    async def advance_release(
        self,
        claim: TaskClaim,
        release_id: str,
        state: ReleaseState,
        *,
        barrier: Mapping[str, object] | None = None,
        error: str | None = None,
    ) -> None: ...

    async def store_terms(
        self, claim: TaskClaim, kb_revision: str, classes: Sequence[ClassTerms]
    ) -> None: ...

    async def activate(
        self, tenant: str, release_id: str, expected_sequence: int | None, claim: TaskClaim | None = None
    ) -> Activation:
        """One conditional update: the sequence is still the one the build began with (or the
        expected one), every document of the release is live and has the ACL class it was built
        with. A worker gives its ``claim``, an operator none. Raises ReleaseConflict, NotFound,
        IllegalTransition.
        """
        ...

    async def roll_back(
        self, tenant: str, knowledge_base: str, expected_sequence: int | None = None
    ) -> Activation:
        """Back to the release that was active before, under a new, higher sequence; versions newer
        than its snapshot become withdrawn and the tenant's epoch rises. Rolling back again goes
        further back, never to a release gone back from or one with versions so withdrawn. Raises
        KnowledgeBaseNotFound, and ReleaseConflict when there is none or the sequence isn't the
        expected one.
        """
        ...

    async def releases(self, tenant: str, knowledge_base: str) -> list[ReleaseRecord]:
        """Newest first; empty for an unknown knowledge base."""
        ...

    async def release(self, tenant: str, release_id: str) -> ReleaseRecord | None: ...

    async def mark_reclaimed(self, tenant: str, release_id: str) -> None:
        """READY, RETIRED or FAILED -> RECLAIMED, term statistics dropped."""
        ...


class ObjectStore(Protocol):
    """Originals, chunk files and vector files. Raises ObjectStoreUnavailable."""

    async def put(self, key: str, content: bytes) -> None:
        """Whole or not at all; writing the same key again replaces it."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def exists(self, key: str) -> bool: ...

    async def delete(self, key: str) -> None:
        """Fine when there is none."""
        ...


class DocumentParser(Protocol):
    """Turns a file into passages, away from the event loop and inside time and memory limits."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        """Raises DocumentRejected with a reason a person understands."""
        ...
