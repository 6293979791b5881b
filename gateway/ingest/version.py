"""Document versions on their way to READY, and where their vectors lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """One chunk of a version. ``text_hash`` is over the tenant and the embedded text, ``content_hash`` over
    the raw one. Manifests of early installations have the first over the text alone, and keep it.
    """

    chunk_index: int
    chunk_id: str
    content_hash: str
    text_hash: str


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a text's vector lies: row ``position`` of the vector file ``object_key``.

    ``made_by`` is the task that embedded it, as far as the catalog knows.
    """

    object_key: str
    position: int
    made_by: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class BuiltVersion:
    """The outcome of building one version, recorded together with its READY state.

    ``valid_from`` and ``valid_until`` are what the document says of itself, ``risk`` is what was found in it.
    """

    ref: DocumentRef
    title: str
    parser_version: str
    splitter_version: str
    chunks_key: str
    manifest: tuple[ManifestEntry, ...]
    space_id: str
    new_vectors: Mapping[str, VectorPlace]
    valid_from: int | None = None
    valid_until: int | None = None
    risk: tuple[str, ...] = ()


def validity(
    given_from: int | None, given_until: int | None, built: BuiltVersion
) -> tuple[int | None, int | None]:
    """When a version holds: as its importer gave it, else as the document says of itself.

    A statement that would leave no moment at all with what was given doesn't count.
    """
    start = built.valid_from if given_from is None else given_from
    end = built.valid_until if given_until is None else given_until
    if start is not None and end is not None and start >= end:
        return given_from, given_until
    return start, end
