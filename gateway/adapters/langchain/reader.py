"""LangChainReader: dense search through LangChain, in the same place, time and filter as through pymilvus.

Only the call itself is the framework's. Where to look, for how long, how consistently, whether the revision
is there at all, and the forced filter are the store's own, so the two paths can't drift apart. The framework
finds nothing, and says nothing, where a collection is missing: hence the looks before the first question.

Nothing here goes through LangChain's callbacks, so its tracing has nothing to send, whatever is switched on.
"""

import asyncio
from typing import Any

from gateway.adapters.langchain.metric import similarity_of
from gateway.adapters.langchain.vectors import OpenedVectors
from gateway.adapters.milvus.client import Connection, uninterrupted
from gateway.adapters.milvus.filter import checked_hit, scope_filter
from gateway.adapters.milvus.reading import LARGEST_LIMIT, Reading
from gateway.adapters.milvus.rows import as_chunk
from gateway.adapters.milvus.store import MilvusStore, ordered
from gateway.context import Deadline
from gateway.errors import EmbeddingSpaceMismatch
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit

_CLOSE_CAP_S = 2.0


class LangChainReader:
    """A DenseReader beside a MilvusStore, whose connections it follows. Close it before the store."""

    def __init__(self, store: MilvusStore) -> None:
        self._store = store
        self._openings: dict[str, asyncio.Task[OpenedVectors]] = {}

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        scope = scope_filter(query)  # before anything else: an unscoped query touches no store
        if len(vector) != query.release.space.dimension:
            raise EmbeddingSpaceMismatch()
        if limit <= 0:
            return []

        async def ask(reading: Reading) -> list[tuple[dict[str, Any], float]]:
            opened = await self._opened(reading.connection, query.release.collection)
            count, params = min(limit, LARGEST_LIMIT), reading.dense_params(limit)
            rows = await opened.search(vector, scope, count, params, reading.call())
            return [(row, similarity_of(opened.metric, number)) for row, number in rows]

        found = await self._store.read(query, deadline, ask)
        return ordered([Hit(checked_hit(query, as_chunk(row)), score) for row, score in found])

    async def aclose(self) -> None:
        """Ends what is being opened and closes what is open."""
        openings, self._openings = list(self._openings.values()), {}
        for opening in openings:
            await _discard(opening)

    async def _opened(self, connection: Connection, collection: str) -> OpenedVectors:
        """The collection's; opened again when it couldn't be, or when the store has another server now.

        In a task of its own: opening may take longer than one caller's deadline, and the next should find it
        done.
        """
        opening = self._openings.get(collection)
        if opening is not None and _stale(opening, connection):
            await _discard(self._openings.pop(collection))
            opening = self._openings.get(collection)  # somebody may have been faster
        if opening is None:
            opening = asyncio.create_task(OpenedVectors.open(connection, collection))
            opening.add_done_callback(_failed)
            self._openings[collection] = opening
        return await uninterrupted(asyncio.shield(opening))


def _stale(opening: asyncio.Task[OpenedVectors], connection: Connection) -> bool:
    """Whether it is over and of no use."""
    return opening.done() and (_failed(opening) or opening.result().endpoint != connection.endpoint)


def _failed(opening: asyncio.Task[OpenedVectors]) -> bool:
    return opening.cancelled() or opening.exception() is not None


async def _discard(opening: asyncio.Task[OpenedVectors]) -> None:
    await asyncio.wait([opening], timeout=_CLOSE_CAP_S)
    if not opening.done():
        opening.cancel()
    elif not _failed(opening):
        await opening.result().aclose()
