"""The rows of the in-memory catalog, and the look-ups every part of it shares."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gateway.access.apikey import ApiKey
from gateway.access.authorizer import DocumentRef
from gateway.access.classes import CLASS_OF_NOBODY, Acl, AclClass
from gateway.adapters.acts import Answer
from gateway.adapters.memory.lexicon import Counted
from gateway.answer.conversation import Turn
from gateway.errors import StaleFence
from gateway.ingest.journal import JournalEntry
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.task import TaskClaim, TaskKind, TaskState
from gateway.ingest.uploads import NewDocument
from gateway.ingest.version import BuiltVersion, VectorPlace, validity
from gateway.observe.audit import AuditRecord
from gateway.observe.tracelog import TraceRecord
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig, VersionState
from gateway.retrieval.risk import APPROVED, REJECTED, UNREVIEWED, markers_of, merged, needs_approval
from gateway.stream.revocation import RevocationKind, RevocationRecord

_UNFINISHED = frozenset({ReleaseState.PENDING, ReleaseState.BUILDING, ReleaseState.VALIDATING})


def fresh_id() -> str:
    return uuid.uuid4().hex


@dataclass(slots=True)
class KnowledgeBaseRow:
    """``sequence`` is that of the last activation, 0 before the first; ``ready`` counts versions."""

    kb_id: str
    tenant: str
    name: str
    acl_revision: int = 0
    sequence: int = 0
    ready: int = 0
    classes: dict[Acl, int] = field(default_factory=dict)
    activations: list["ActivationRow"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """One activation or rollback; ``config_left`` and ``model_left`` are what was gone back from."""

    space: EmbeddingSpace
    config: RetrievalConfig
    model: str
    config_left: RetrievalConfig | None = None
    model_left: str | None = None


@dataclass(slots=True)
class VersionRow:
    """One accepted version. ``built`` comes with READY, and so does its place in the order of READY."""

    ref: DocumentRef
    document: NewDocument
    acl_class: int
    state: VersionState = VersionState.PENDING
    withdrawn: bool = False
    withdrawn_at: float | None = None
    deleted_at: float | None = None
    error: str | None = None
    built: BuiltVersion | None = None
    ready_number: int = 0
    approval: str = UNREVIEWED
    approved_by: str | None = None
    approved_at: float | None = None
    approval_note: str = ""

    @property
    def risk(self) -> tuple[str, ...]:
        """The markers it was given and earned, as its passages carry them."""
        found = () if self.built is None else self.built.risk
        return markers_of(merged(self.document.risk, found), self.approval)

    @property
    def may_be_released(self) -> bool:
        """A person may keep it out, and must let it in when it is of high risk."""
        return self.approval == APPROVED or (self.approval != REJECTED and not needs_approval(self.risk))

    @property
    def validity(self) -> tuple[int | None, int | None]:
        """From and until, in seconds since the epoch."""
        given = self.document.valid_from, self.document.valid_until
        return given if self.built is None else validity(*given, self.built)


@dataclass(slots=True)
class DocumentRow:
    """``acl`` is the current one; versions are numbered from 1 in this order."""

    document_id: str
    tenant: str
    kb_id: str
    source: str
    acl: Acl
    acl_class: int
    created_at: float
    deleted_at: float | None = None
    versions: list[VersionRow] = field(default_factory=list)

    @property
    def deleted(self) -> bool:
        return self.deleted_at is not None


@dataclass(slots=True)
class TaskRow:
    """``attempts`` counts claims that weren't given back; ``refs`` are the task's versions in order.

    ``promised_release_id`` is that of a release task's first release, known before it begins.
    """

    task_id: str
    kind: TaskKind
    tenant: str
    kb_id: str
    activate: bool
    allow_partial: bool
    deadline_at: float
    created_at: float
    updated_at: float
    subject: str = ""
    refs: tuple[DocumentRef, ...] = ()
    state: TaskState = TaskState.PENDING
    stage: str = "accepted"
    done: int = 0
    total: int = 0
    fence: int = 0
    attempts: int = 0
    lease_until: float = 0.0
    cancel_requested: bool = False
    error_code: str | None = None
    error_detail: str | None = None
    release_id: str | None = None
    promised_release_id: str | None = None
    target: str | None = None
    report: dict[str, object] | None = None
    not_before: float | None = None
    trouble: str | None = None
    put_offs: int = 0
    claimed_at: float = 0.0


@dataclass(slots=True)
class KeptAnswer:
    """What a tenant's subject was answered under one of his keys."""

    request_hash: str
    answer: Answer
    at: float


@dataclass(slots=True)
class ReleaseRow:
    """``retired`` orders retirements: the highest number is the most recent, and 0 is no way back.

    ``ready`` is how many versions had become READY when the snapshot was taken. ``moving`` holds documents
    whose rows may carry another class than ``plan`` says.
    """

    plan: ReleasePlan
    task_id: str
    ready: int
    created_at: float
    state: ReleaseState = ReleaseState.BUILDING
    sequence: int | None = None
    retired: int = 0
    activated_at: float | None = None
    retired_at: float | None = None
    reclaimed_at: float | None = None
    swept_at: float | None = None
    error: str | None = None
    barrier: Mapping[str, object] | None = None
    moving: set[str] = field(default_factory=set)

    @property
    def documents(self) -> tuple[PlannedDocument, ...]:
        return self.plan.documents


def newest_standing(document: DocumentRow) -> VersionRow | None:
    """The newest version that neither failed nor was withdrawn."""
    return next(
        (v for v in reversed(document.versions) if v.state is not VersionState.FAILED and not v.withdrawn),
        None,
    )


class CatalogRows:
    """All tables as dicts. No method awaits between a check and its write, so each is atomic."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._incarnation = fresh_id()
        self._journal: list[JournalEntry] = []  # oldest first, what nobody has sent on
        self._journal_claims: dict[int, float] = {}
        self._journal_seqs = itertools.count(1)
        self._epochs: dict[str, int] = {}
        self._knowledge_bases: dict[str, KnowledgeBaseRow] = {}
        self._documents: dict[str, DocumentRow] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._answers: dict[tuple[str, str, str], KeptAnswer] = {}
        self._releases: dict[str, ReleaseRow] = {}
        self._spaces: dict[str, EmbeddingSpace] = {}
        self._vectors: dict[tuple[str, str], VectorPlace] = {}
        self._terms: dict[tuple[str, str, str], Counted] = {}
        self._condemned: dict[str, float] = {}
        self._objects_swept_at = 0.0
        self._revocations: dict[str, RevocationRecord] = {}
        self._audit: list[AuditRecord] = []
        self._api_keys: dict[str, ApiKey] = {}
        self._traces: dict[str, TraceRecord] = {}
        self._turns: list[Turn] = []

    def _note(self, kind: str, /, **payload: object) -> None:
        """An entry for the journal."""
        entry = JournalEntry(self._incarnation, next(self._journal_seqs), kind, self._clock(), payload)
        self._journal.append(entry)

    def _bump_epoch(self, tenant: str) -> int:
        self._epochs[tenant] = self._epochs.get(tenant, 0) + 1
        return self._epochs[tenant]

    def _kb(self, tenant: str, kb_id: str) -> KnowledgeBaseRow | None:
        kb = self._knowledge_bases.get(kb_id)
        return kb if kb is not None and kb.tenant == tenant else None

    def _kb_named(self, tenant: str, name: str) -> KnowledgeBaseRow | None:
        return next(
            (kb for kb in self._knowledge_bases.values() if (kb.tenant, kb.name) == (tenant, name)), None
        )

    def _document(self, tenant: str, document_id: str) -> DocumentRow | None:
        document = self._documents.get(document_id)
        return document if document is not None and document.tenant == tenant else None

    def _documents_of(self, kb_id: str) -> list[DocumentRow]:
        rows = (document for document in self._documents.values() if document.kb_id == kb_id)
        return sorted(rows, key=lambda document: document.source)

    def _classes_in_use(self, kb: KnowledgeBaseRow) -> tuple[AclClass, ...]:
        """Those of live documents, and those that the active release's chunks carry for them."""
        live = [document for document in self._documents_of(kb.kb_id) if not document.deleted]
        current = {document.acl_class: document.acl for document in live}
        used = {AclClass(number, acl) for number, acl in current.items()}
        acls = {number: acl for acl, number in kb.classes.items()}
        active = self._active(kb.kb_id)
        for planned in active.documents if active is not None else ():
            document = self._documents[planned.ref.document_id]
            if planned.acl_class == CLASS_OF_NOBODY:
                continue
            if not document.deleted and planned.acl_class not in current:
                used.add(AclClass(planned.acl_class, _narrowed(acls[planned.acl_class], document.acl)))
        return tuple(sorted(used, key=lambda each: each.number))

    def _version(self, ref: DocumentRef) -> VersionRow:
        return self._documents[ref.document_id].versions[ref.document_version - 1]

    def _release(self, tenant: str, release_id: str) -> ReleaseRow | None:
        release = self._releases.get(release_id)
        return release if release is not None and release.plan.tenant == tenant else None

    def _releases_of(self, kb_id: str) -> Iterator[ReleaseRow]:
        return (release for release in self._releases.values() if release.plan.kb_id == kb_id)

    def _active(self, kb_id: str) -> ReleaseRow | None:
        return next((r for r in self._releases_of(kb_id) if r.state is ReleaseState.ACTIVE), None)

    def _abandon(self, task_id: str, error: str) -> None:
        """Fails what the task has begun and not finished."""
        for release in self._releases.values():
            if release.task_id == task_id and release.state in _UNFINISHED:
                release.state, release.error = ReleaseState.FAILED, error

    def _revoked(self, tenant: str, kind: RevocationKind) -> frozenset[str]:
        """Subjects of the revocations in force."""
        return frozenset(
            record.subject
            for record in self._revocations.values()
            if (record.tenant, record.kind) == (tenant, kind) and record.lifted_at is None
        )

    def _is_gone(self, tenant: str, subject: str) -> bool:
        """Whether this user, or this key, or the maker of it, was revoked."""
        users = self._revoked(tenant, RevocationKind.USER)
        keys = [key for key in self._api_keys.values() if (key.tenant, key.subject) == (tenant, subject)]
        makers = {key.created_by for key in keys}
        return (
            subject in users or bool(users & makers) or (keys != [] and all(key.revoked_at for key in keys))
        )

    def _held(self, claim: TaskClaim) -> TaskRow:
        """The claim's task; raises StaleFence unless the claim still holds it."""
        task = self._tasks.get(claim.task_id)
        if task is None or task.fence != claim.fence or task.state is not TaskState.RUNNING:
            raise StaleFence()
        return task


def _narrowed(stored: Acl, current: Acl) -> Acl:
    """Whom both let in by one name; everybody has the name public."""
    if "public" in stored.allow | current.allow:
        allow = current.allow if "public" in stored.allow else stored.allow
    else:
        allow = stored.allow & current.allow
    return Acl(allow, stored.deny | current.deny)
