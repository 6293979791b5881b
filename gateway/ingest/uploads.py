"""What an importer brings, and what the catalog made of it."""

from dataclasses import dataclass

from gateway.access.classes import Acl
from gateway.release.model import (
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
