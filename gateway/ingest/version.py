"""Document versions on their way to READY, and where their vectors lie."""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef
from gateway.release.model import (
    VersionState,
)


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
