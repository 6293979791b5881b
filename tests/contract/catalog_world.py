"""A small world around a catalog under test: a clock to set, and imports in a few words."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from gateway.access.authorizer import AccessCatalog, DocumentRef, DocumentStanding
from gateway.access.classes import Acl
from gateway.access.scope import AccessScope
from gateway.answer.conversation import TurnStore
from gateway.answer.explaining import ReleaseContents
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.governance import Governance, MoveStore
from gateway.ingest.journal import JournalOutbox
from gateway.ingest.plan import Activation, ReleasePlan
from gateway.ingest.references import ReclaimStore, ReferenceStore, RemainsStore
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.ingest.uploads import Accepted, ImportRequest, NewDocument
from gateway.ingest.version import BuiltVersion, ManifestEntry, VectorPlace
from gateway.observe.audit import AuditLog
from gateway.observe.tracelog import TraceStore
from gateway.release.catalog import ReleaseCatalog
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig, VersionState
from gateway.retrieval.lexicon import Lexicon
from gateway.stream.revocation import RevocationCatalog

SPACE = EmbeddingSpace("test-space", "test-model", 8)
CONFIG = RetrievalConfig("config/1", 1.0, 2.0, 0.5)
PUBLIC = Acl(frozenset({"public"}))
SALES = Acl(frozenset({"group:sales"}))

#: what cases 3 and 5 of the public faults try as names, ids and sources
HOSTILE_NAMES = (
    "it's",
    '") or true or ("',
    "a\\",
    'a"b',
    "x'; DROP TABLE documents; --",
    "line\nbreak",
    "%_*?[a-z]",
    "{}:{0}:$1:?1",
    "手册 🙂‍↔️",
    "é",
    "e\u0301",
    "long" * 2560,
)


class Catalog(
    AccessCatalog,
    ReleaseCatalog,
    TaskStore,
    VersionStore,
    ReleaseStore,
    RevocationCatalog,
    AuditLog,
    Lexicon,
    RemainsStore,
    ReferenceStore,
    ReclaimStore,
    Governance,
    MoveStore,
    JournalOutbox,
    TraceStore,
    TurnStore,
    ReleaseContents,
    Protocol,
):
    """All catalog ports at once: what every implementation must be."""

    async def ping(self) -> None: ...

    async def active_spaces(self) -> frozenset[str]: ...


@dataclass
class Clock:
    """Seconds since the epoch, standing still until it is moved."""

    now: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def upload(
    source: str,
    text: str = "text",
    acl: Acl = PUBLIC,
    *,
    category: str = "",
    valid_from: int | None = None,
    valid_until: int | None = None,
    sensitivity: int = 0,
) -> NewDocument:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return NewDocument(
        source=source,
        uri=f"file:{source}",
        media_type="text/plain",
        original_key=f"originals/{digest}",
        content_sha256=digest,
        size_bytes=len(text),
        acl=acl,
        category=category,
        valid_from=valid_from,
        valid_until=valid_until,
        sensitivity=sensitivity,
        author="an author",
        risk=("external",),
    )


def import_of(
    *documents: NewDocument,
    kb: str = "handbook",
    tenant: str = "acme",
    key: str | None = None,
    request_hash: str = "",
    deadline_s: float = 3600.0,
    activate: bool = False,
    allow_partial: bool = False,
) -> ImportRequest:
    return ImportRequest(
        tenant=tenant,
        knowledge_base=kb,
        subject="importer",
        documents=documents,
        activate=activate,
        allow_partial=allow_partial,
        deadline_s=deadline_s,
        idempotency_key=key,
        request_hash=request_hash,
    )


def built(ref: DocumentRef, *texts: str, title: str = "A title") -> BuiltVersion:
    """One chunk for each text, its vector in a file of the version's own."""
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
    name = f"{ref.document_id}/{ref.document_version}"
    return BuiltVersion(
        ref=ref,
        title=title,
        parser_version="parser/1",
        splitter_version="splitter/1",
        chunks_key=f"chunks/{name}",
        manifest=tuple(
            ManifestEntry(index, f"{name}/{index}", f"content-{digest}", digest)
            for index, digest in enumerate(hashes)
        ),
        space_id=SPACE.space_id,
        new_vectors={
            digest: VectorPlace(f"vectors/{name}", position) for position, digest in enumerate(hashes)
        },
    )


class World:
    """The catalog under test and its clock; each method is a story told in one line."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self.catalog = catalog
        self.clock = clock

    async def accept(self, *documents: NewDocument, kb: str = "handbook", tenant: str = "acme") -> Accepted:
        self.clock.advance(1)
        return await self.catalog.accept_import(import_of(*documents, kb=kb, tenant=tenant))

    async def claim(self, lease_s: float = 30.0, attempts: int = 5) -> TaskClaim:
        """The next task but clean-ups, which end without having done anything."""
        while True:
            claim = await self.catalog.claim("worker", lease_s, attempts)
            assert claim is not None
            if claim.kind is not TaskKind.CLEANUP:
                return claim
            await self.catalog.finish(claim, Ending(TaskState.SUCCEEDED))

    async def build_versions(self, claim: TaskClaim) -> None:
        """Takes every open version of the task to READY, one chunk each."""
        for job in await self.catalog.unfinished_versions(claim):
            for state in (VersionState.BUILDING, VersionState.VALIDATING):
                await self.catalog.advance_versions(claim, [job.ref], state)
            text = f"passage of {job.original_key}"
            await self.catalog.complete_versions(claim, [built(job.ref, text)])

    async def import_ready(
        self, *documents: NewDocument, kb: str = "handbook", tenant: str = "acme"
    ) -> list[DocumentRef]:
        """Imports and builds; the refs are in the order of the uploads."""
        accepted = await self.accept(*documents, kb=kb, tenant=tenant)
        claim = await self.claim()
        await self.build_versions(claim)
        await self.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
        return [DocumentRef(d.document_id, d.document_version) for d in accepted.documents]

    async def release_claim(self, kb: str = "handbook", tenant: str = "acme") -> TaskClaim:
        """A claimed release task."""
        self.clock.advance(1)
        await self.catalog.accept_release(tenant, kb, 3600.0)
        return await self.claim()

    async def ready_release(
        self, kb: str = "handbook", tenant: str = "acme", config: RetrievalConfig = CONFIG
    ) -> ReleasePlan:
        """Builds a release from what is READY now, and doesn't activate it."""
        claim = await self.release_claim(kb, tenant)
        plan = await self.catalog.begin_release(claim, SPACE, config)
        for state in (ReleaseState.VALIDATING, ReleaseState.READY):
            await self.catalog.advance_release(claim, plan.release_id, state)
        await self.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
        return plan

    async def release(self, kb: str = "handbook", tenant: str = "acme") -> tuple[ReleasePlan, Activation]:
        """Builds a release from what is READY now and activates it."""
        plan = await self.ready_release(kb, tenant)
        return plan, await self.catalog.activate(tenant, plan.release_id, None)

    async def kb_id(self, kb: str = "handbook", tenant: str = "acme") -> str:
        stamp = await self.catalog.tenant_stamp(tenant)
        return next(known.kb_id for known in stamp.knowledge_bases if known.name == kb)

    async def acl_revision(self, kb: str = "handbook", tenant: str = "acme") -> int:
        stamp = await self.catalog.tenant_stamp(tenant)
        return next(known.acl_revision for known in stamp.knowledge_bases if known.name == kb)

    async def epoch(self, tenant: str = "acme") -> int:
        return (await self.catalog.tenant_stamp(tenant)).revocation_epoch

    async def standing(
        self, ref: DocumentRef, kb: str = "handbook", tenant: str = "acme"
    ) -> DocumentStanding | None:
        found = await self.catalog.standings(tenant, await self.kb_id(kb, tenant), [ref])
        return found.get(ref)


def scope_of(
    tenant: str, kb_id: str, classes: Iterable[int], principals: Iterable[str] = ("public",)
) -> AccessScope:
    return AccessScope(
        tenant=tenant,
        kb_id=kb_id,
        knowledge_base="handbook",
        acl_revision=1,
        revocation_epoch=0,
        incarnation="an-incarnation",
        principals=frozenset(principals),
        permitted_classes=frozenset(classes),
    )
