"""Rows: how a chunk looks inside Milvus, and how its terms become words that BM25 can't split."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gateway.adapters.milvus.filter import checked_text
from gateway.errors import InvariantViolated
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.store import Row

#: the most a VARCHAR field holds, in bytes
MAX_TEXT_BYTES = 65_535
#: the most elements an ARRAY field holds, hence distinct terms of a passage where the gateway scores words
MAX_TERMS = 4096

TEXT_FIELDS = (
    "row_id", "chunk_id", "tenant_id", "kb_id", "kb_revision", "embedding_space_id", "document_id",
    "category", "title", "section", "source_uri", "parser_version", "splitter_version", "content_hash",
    "author", "approval", "content",
)  # fmt: skip
NUMBER_FIELDS = (
    "document_version", "chunk_index", "acl_class", "valid_from", "valid_until", "sensitivity",
    "revocation_epoch", "page",
)  # fmt: skip
#: everything a hit carries back; vectors and terms stay in the store
OUTPUT_FIELDS = [*TEXT_FIELDS, *NUMBER_FIELDS, "risk"]

_PLAIN_WORD = re.compile(r"[a-wyz0-9][a-z0-9]*")
_LONGEST_WORD = 40
# Risk markers share one field. They are short codes of the importer's, joined by what none may hold.
_RISK_SEPARATOR = "\n"


def word_of(term: str) -> str:
    """An ASCII word for a term; no two terms share one (but for hash collisions of long ones).

    The store's ``standard`` analyzer keeps ``[a-z0-9]+`` whole. Other terms, and those that could be
    mistaken for an encoded one, become ``x`` + hex; very long ones ``xh`` + a hash.
    """
    if len(term) <= _LONGEST_WORD and _PLAIN_WORD.fullmatch(term):
        return term
    raw = term.encode("utf-8", "surrogatepass")
    if len(raw) * 2 < _LONGEST_WORD:
        return "x" + raw.hex()
    return "xh" + hashlib.sha256(raw).hexdigest()[:32]


def words_of(terms: Iterable[str]) -> str:
    """Terms as the text of the BM25 field, or as a query against it; repeats are kept."""
    return " ".join(map(word_of, terms))


def word_id(word: str) -> int:
    """A word as a signed 64-bit number, for a filter to find it by."""
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big", signed=True)


def as_entity(row: Row, space: EmbeddingSpace, kb_revision: str, *, bm25: bool) -> dict[str, Any]:
    """A row as pymilvus takes it; without ``bm25`` it has the ids of its words as well.

    Raises InvariantViolated when it belongs elsewhere or doesn't fit, InvalidField for text that no
    filter could match.
    """
    chunk = row.chunk
    if chunk.kb_revision != kb_revision or chunk.embedding_space_id != space.space_id:
        raise InvariantViolated("a row was about to be written into another revision or space")
    if len(row.vector) != space.dimension or not all(map(math.isfinite, row.vector)):
        raise InvariantViolated(f"a vector must be {space.dimension} finite numbers")
    if any(_RISK_SEPARATOR in marker for marker in chunk.risk):
        raise InvariantViolated("a risk marker is one line")
    entity: dict[str, Any] = {name: getattr(chunk, name) for name in (*TEXT_FIELDS, *NUMBER_FIELDS)}
    entity["risk"] = _RISK_SEPARATOR.join(chunk.risk)
    entity["terms"] = words_of(row.terms)
    for name in (*TEXT_FIELDS, "risk", "terms"):
        if len(checked_text(entity[name], name).encode()) > MAX_TEXT_BYTES:
            raise InvariantViolated(f"a chunk's {name} is longer than the store holds")
    entity["vector"] = list(row.vector)
    if not bm25:
        entity["term_ids"] = [word_id(word) for word in dict.fromkeys(entity["terms"].split())]
        if len(entity["term_ids"]) > MAX_TERMS:
            raise InvariantViolated("a chunk has more distinct terms than the store holds")
    return entity


def as_chunk(fields: Mapping[str, Any]) -> Chunk:
    """The chunk a stored row came from. Raises InvariantViolated when the row lacks a field."""
    missing = [name for name in OUTPUT_FIELDS if fields.get(name) is None]
    if missing:
        raise InvariantViolated(f"a stored row lacks {', '.join(missing)}")
    risk = str(fields["risk"])
    values: dict[str, Any] = {name: str(fields[name]) for name in TEXT_FIELDS}
    values |= {name: int(fields[name]) for name in NUMBER_FIELDS}
    return Chunk(**values, risk=tuple(risk.split(_RISK_SEPARATOR)) if risk else ())


def batches(rows: Sequence[dict[str, Any]], size: int) -> Iterable[list[dict[str, Any]]]:
    """The rows in order, at most ``size`` at once."""
    for start in range(0, len(rows), size):
        yield list(rows[start : start + size])
