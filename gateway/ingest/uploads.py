"""What an importer brings, and what the catalog made of it."""

import json
from dataclasses import dataclass

from gateway.access.act import Act
from gateway.access.classes import Acl
from gateway.release.model import (
    VersionState,
)
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.risk import APPROVED, REJECTED, needs_approval


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

    @property
    def fingerprint(self) -> str:
        """Everything about an upload but the place of its bytes: their hash already names them.

        Whoever uploads can tell by it, too, that there is nothing new to send.
        """
        parts = [
            self.content_sha256,
            self.media_type,
            self.uri,
            self.category,
            self.valid_from,
            self.valid_until,
            self.sensitivity,
            self.author,
            self.approval,
            list(self.risk),
            [_canonical(sorted(self.acl.allow)), _canonical(sorted(self.acl.deny))],
        ]
        return stable_hash(_canonical(parts))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


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

    @property
    def act(self) -> Act:
        return Act(self.tenant, self.subject, "import", self.request_hash, self.idempotency_key)


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
class StandingVersion:
    """The newest version that has neither failed nor been withdrawn; ``fingerprint`` is its upload's."""

    document_version: int
    state: VersionState
    content_sha256: str
    size_bytes: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A live document as its importer sees it; the version is the newest accepted one.

    ``withdrawn``: a rollback has taken that version back. ``standing``: what a new upload is compared with.
    ``revoked_at``: since when it, or its knowledge base, is revoked, in seconds since the epoch.
    """

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
    standing: StandingVersion | None
    withdrawn: bool
    approval: str
    approved_by: str | None
    approved_at: float | None
    risk: tuple[str, ...]
    revoked_at: float | None

    @property
    def awaiting_approval(self) -> bool:
        """Whether no release takes the version in before a person has approved it."""
        unread = self.approval not in {APPROVED, REJECTED}
        return self.state is VersionState.READY and unread and needs_approval(self.risk)
