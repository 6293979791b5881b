"""The ports to a vector store: one to read under a ScopedQuery, one to write whole revisions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.context import Deadline
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery

#: the ``consistency`` of readers that are never behind
IMMEDIATE = "immediate"


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored chunk and the route's own score, higher is better.

    dense: cosine similarity in [-1, 1]; bm25: a positive BM25 score, and the stored vector with it, so
    that a passage found by its words alone can be compared with the question too.
    """

    chunk: Chunk
    score: float
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What is written: the chunk, its vector, and the terms its BM25 route is searched by."""

    chunk: Chunk
    vector: Vector
    terms: tuple[str, ...]


class ChunkReader(Protocol):
    """Every method applies the whole forced filter of the query: tenant, knowledge base, revision,
    space, permitted classes, validity, category. Raises VectorStoreUnavailable, DeadlineExceeded.
    """

    @property
    def consistency(self) -> str:
        """IMMEDIATE where a read shows every acknowledged write; else the store's name for how far it
        may be behind.
        """
        ...

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        """Nearest first by cosine similarity."""
        ...

    async def lexical(
        self, query: ScopedQuery, terms: Sequence[str], limit: int, deadline: Deadline
    ) -> list[Hit]:
        """Best first by BM25 over the given terms; no terms, no hits."""
        ...

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        """The permitted ones among these chunks, in no order."""
        ...

    async def permitted(self, query: ScopedQuery, deadline: Deadline) -> int:
        """How many chunks the query's filter lets through."""
        ...


class ChunkWriter(Protocol):
    """Writes revisions. A revision's rows are only ever touched under its own name."""

    async def prepare(self, space: EmbeddingSpace) -> str:
        """Makes the space's collection where it is missing; returns its name."""
        ...

    async def write(self, space: EmbeddingSpace, kb_revision: str, rows: Sequence[Row]) -> None:
        """Upserts rows; all of them must carry ``kb_revision`` and the space's id."""
        ...

    async def seal(self, space: EmbeddingSpace, kb_revision: str) -> None:
        """Makes everything written to the revision durable and readable."""
        ...

    async def count(self, space: EmbeddingSpace, kb_revision: str) -> int:
        """Rows of the revision, as a reader would find them."""
        ...

    async def drop(self, space: EmbeddingSpace, kb_revision: str) -> None:
        """Removes the revision's rows and nothing else; fine when there are none."""
        ...

    async def delete_document(
        self, space: EmbeddingSpace, kb_revision: str, tenant: str, kb_id: str, document_id: str
    ) -> int:
        """Removes one document's rows from a revision; how many there were. Fine when there are none, no
        such revision or no collection. Whoever reads the revision next doesn't find them, and it stays whole.
        """
        ...

    async def revisions(self, space: EmbeddingSpace) -> Mapping[str, int]:
        """Every revision that has rows in the space's collection, and how many, as the store itself lists
        them; nothing without a collection. For comparisons: it reads the whole collection, in parts.
        """
        ...
