"""MemoryVectors: the in-memory twin of the vector store, exact and without a filter language."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gateway.context import Deadline
from gateway.errors import (
    EmbeddingSpaceMismatch,
    InvalidField,
    InvariantViolated,
    UnscopedAccess,
    VectorStoreUnavailable,
)
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.bm25 import saturated
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import IMMEDIATE, Hit, Row

#: rows of one revision by row id
_Revision = dict[str, Row]


class MemoryVectors:
    """ChunkReader and ChunkWriter. Set ``available`` to False to see what callers do without it."""

    consistency = IMMEDIATE

    def __init__(self) -> None:
        self.available = True
        self._collections: dict[str, dict[str, _Revision]] = {}
        self._dimensions: dict[str, int] = {}

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        rows = self._permitted(query, deadline)
        if len(vector) != query.release.space.dimension:
            raise EmbeddingSpaceMismatch()
        return _best([Hit(row.chunk, _cosine(vector, row.vector)) for row in rows], limit)

    async def lexical(
        self, query: ScopedQuery, terms: Sequence[str], limit: int, deadline: Deadline
    ) -> list[Hit]:
        rows = self._permitted(query, deadline)
        hits = [Hit(row.chunk, score, row.vector) for row, score in _bm25(terms, rows)]
        return _best([hit for hit in hits if hit.score > 0], limit)

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        wanted = {_checked(chunk_id) for chunk_id in chunk_ids}
        return [row.chunk for row in self._permitted(query, deadline) if row.chunk.chunk_id in wanted]

    async def permitted(self, query: ScopedQuery, deadline: Deadline) -> int:
        return len(self._permitted(query, deadline))

    async def ping(self, deadline: Deadline) -> None:
        deadline.budget("retrieval", math.inf)
        self._expect_available()

    async def prepare(self, space: EmbeddingSpace) -> str:
        self._expect_available()
        if self._dimensions.setdefault(space.collection, space.dimension) != space.dimension:
            raise EmbeddingSpaceMismatch()
        self._collections.setdefault(space.collection, {})
        return space.collection

    async def write(self, space: EmbeddingSpace, kb_revision: str, rows: Sequence[Row]) -> None:
        for row in rows:
            _check_row(row, space, kb_revision)
        revision = self._revisions(space.collection).setdefault(kb_revision, {})
        revision.update({row.chunk.row_id: row for row in rows})

    async def seal(self, space: EmbeddingSpace, kb_revision: str) -> None:
        self._revisions(space.collection).setdefault(kb_revision, {})

    async def count(self, space: EmbeddingSpace, kb_revision: str) -> int:
        return len(self._revisions(space.collection).get(kb_revision, {}))

    async def drop(self, space: EmbeddingSpace, kb_revision: str) -> None:
        self._expect_available()
        self._collections.get(space.collection, {}).pop(kb_revision, None)

    async def delete_document(
        self, space: EmbeddingSpace, kb_revision: str, tenant: str, kb_id: str, document_id: str
    ) -> int:
        self._expect_available()
        revision = self._collections.get(space.collection, {}).get(kb_revision, {})
        place = (_checked(tenant), _checked(kb_id), _checked(document_id))
        rows = [
            i for i, r in revision.items() if (r.chunk.tenant_id, r.chunk.kb_id, r.chunk.document_id) == place
        ]
        for row_id in rows:
            del revision[row_id]
        return len(rows)

    async def revisions(self, space: EmbeddingSpace) -> Mapping[str, int]:
        self._expect_available()
        revisions = self._collections.get(space.collection, {})
        return {name: len(rows) for name, rows in revisions.items() if rows}

    async def aclose(self) -> None:
        """Nothing is open."""

    def _expect_available(self) -> None:
        if not self.available:
            raise VectorStoreUnavailable()

    def _revisions(self, collection: str) -> dict[str, _Revision]:
        self._expect_available()
        if collection not in self._collections:
            raise VectorStoreUnavailable("the collection is missing")
        return self._collections[collection]

    def _permitted(self, query: ScopedQuery, deadline: Deadline) -> list[Row]:
        """The rows this query may see. Raises as the port says, and UnscopedAccess without classes."""
        names = (query.scope.tenant, query.scope.kb_id, query.release.kb_revision, query.category or "")
        for name in names:
            _checked(name)
        if not query.permitted_classes:
            raise UnscopedAccess("no permitted class")
        deadline.budget("retrieval", math.inf)
        revision = self._revisions(query.release.collection).get(query.release.kb_revision)
        if revision is None:
            raise VectorStoreUnavailable("the release's revision is not in the vector store")
        return [row for row in revision.values() if _visible(query, row.chunk)]


def _visible(query: ScopedQuery, chunk: Chunk) -> bool:
    return all(
        (
            chunk.tenant_id == query.scope.tenant,
            chunk.kb_id == query.scope.kb_id,
            chunk.kb_revision == query.release.kb_revision,
            chunk.embedding_space_id == query.release.space.space_id,
            chunk.acl_class in query.permitted_classes,
            chunk.valid_from <= query.at,
            query.at < chunk.valid_until,
            query.category is None or chunk.category == query.category,
        )
    )


def _checked(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidField("a name must be text")
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidField("a name holds a character that is not allowed")
    return value


def _check_row(row: Row, space: EmbeddingSpace, kb_revision: str) -> None:
    chunk = row.chunk
    if chunk.kb_revision != kb_revision or chunk.embedding_space_id != space.space_id:
        raise InvariantViolated("a row was about to be written into another revision or space")
    if len(row.vector) != space.dimension or not all(map(math.isfinite, row.vector)):
        raise InvariantViolated(f"a vector must be {space.dimension} finite numbers")
    for text in (chunk.tenant_id, chunk.kb_id, chunk.kb_revision, chunk.category, chunk.content):
        _checked(text)


def _cosine(one: Vector, other: Vector) -> float:
    product = math.fsum(a * b for a, b in zip(one, other, strict=True))
    length = math.hypot(*one) * math.hypot(*other)
    return max(-1.0, min(1.0, product / length)) if length else 0.0


def _bm25(terms: Sequence[str], rows: Sequence[Row]) -> Iterable[tuple[Row, float]]:
    """BM25 with Lucene's positive idf, over the visible rows alone."""
    counts = [Counter(row.terms) for row in rows]
    seen = Counter(term for count in counts for term in count)
    average = sum(len(row.terms) for row in rows) / len(rows) if rows else 0.0
    for row, count in zip(rows, counts, strict=True):
        length = len(row.terms) / average if average else 0.0
        score = 0.0
        for term in terms:
            idf = math.log(1 + (len(rows) - seen[term] + 0.5) / (seen[term] + 0.5))
            score += idf * saturated(count[term], length)
        yield row, score


def _best(hits: list[Hit], limit: int) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.chunk_id))[: max(0, limit)]
