"""Chunk: one stored passage with every field a store must hold, and the ids derived from it."""

import hashlib
from dataclasses import dataclass, fields
from operator import attrgetter

from gateway.errors import InvariantViolated

#: "valid for ever" as stores write it (seconds since the epoch)
FOREVER = 253_402_300_799


def stable_hash(*parts: str | int) -> str:
    """Hex digest (32 characters) over the parts; no two part lists share an input."""
    digest = hashlib.sha256()
    for part in parts:
        raw = str(part).encode()
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:32]


def chunk_id(
    tenant: str,
    kb_id: str,
    document_id: str,
    document_version: int,
    parser_version: str,
    splitter_version: str,
    index: int,
) -> str:
    """The same input gives the same id, so a replay writes the same rows."""
    return stable_hash(tenant, kb_id, document_id, document_version, parser_version, splitter_version, index)


def row_id(kb_revision: str, chunk: str) -> str:
    """Primary key in the vector store: one revision's rows never touch another's."""
    return stable_hash(kb_revision, chunk)


def embedded_text(title: str, section: str, content: str) -> str:
    """What is embedded: title, breadcrumb, content. What is stored stays raw."""
    return "\n".join(part for part in (title, section, content) if part)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One passage. ``page`` is 0 when the format has none; times are whole seconds (epoch).

    ``valid_from`` 0 and ``valid_until`` FOREVER mean unbounded. ``risk`` lists markers.
    Raises InvariantViolated when a field is missing, so an incomplete chunk can't be written.
    """

    row_id: str
    chunk_id: str
    tenant_id: str
    kb_id: str
    kb_revision: str
    embedding_space_id: str
    document_id: str
    document_version: int
    chunk_index: int
    acl_class: int
    category: str
    valid_from: int
    valid_until: int
    sensitivity: int
    revocation_epoch: int
    title: str
    section: str
    page: int
    source_uri: str
    parser_version: str
    splitter_version: str
    content_hash: str
    author: str
    approval: str
    risk: tuple[str, ...]
    content: str

    def __post_init__(self) -> None:
        # dozens are made for each question: one look at all of them, and names only where one is missing
        if None in _values(self) or "" in _required_values(self):
            missing = next(name for name in _FIELDS if _is_missing(name, getattr(self, name)))
            raise InvariantViolated(f"a chunk lacks {missing}")
        if self.acl_class < 0 or self.row_id != row_id(self.kb_revision, self.chunk_id):
            raise InvariantViolated("a chunk's ids don't belong together")


_FIELDS = tuple(field.name for field in fields(Chunk))
_MAY_BE_EMPTY = frozenset({"category", "section", "author", "source_uri"})
_values = attrgetter(*_FIELDS)
_required_values = attrgetter(*(name for name in _FIELDS if name not in _MAY_BE_EMPTY))


def _is_missing(name: str, value: object) -> bool:
    return value is None or (value == "" and name not in _MAY_BE_EMPTY)
