"""Readers of vectors that fail, wait or look in the wrong place, for tests of the modes."""

from dataclasses import dataclass, field, replace

from gateway.context import Deadline
from gateway.errors import GatewayError
from gateway.retrieval.embedding import Vector
from gateway.retrieval.modes import DenseReader
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit


@dataclass
class Asked:
    """A DenseReader that remembers what it was asked, and raises ``error`` while there is one."""

    reader: DenseReader
    error: GatewayError | None = None
    queries: list[ScopedQuery] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        self.queries.append(query)
        self.deadlines.append(deadline)
        if self.error is not None:
            raise self.error
        return await self.reader.dense(query, vector, limit, deadline)


@dataclass(frozen=True)
class Misnamed:
    """A DenseReader that looks in a collection of another name."""

    reader: DenseReader
    collection: str = "nowhere"

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        elsewhere = replace(query, release=replace(query.release, collection=self.collection))
        return await self.reader.dense(elsewhere, vector, limit, deadline)


@dataclass(frozen=True)
class Leaking:
    """A DenseReader that forgets the filter: it brings these rows, whoever asks."""

    hits: tuple[Hit, ...]

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        return list(self.hits)
