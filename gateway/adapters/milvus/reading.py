"""Reading: one question's calls to one collection, each inside its deadline and its consistency."""

from typing import Any

from gateway.adapters.milvus.batches import Batches
from gateway.adapters.milvus.client import Connection
from gateway.adapters.milvus.layout import check_fields, partition_of
from gateway.adapters.milvus.seal import seal_filter
from gateway.adapters.milvus.search import Rows, Search
from gateway.context import Deadline
from gateway.errors import VectorStoreUnavailable
from gateway.release.model import RetrievalRelease

#: the most rows Milvus returns at once
LARGEST_LIMIT = 16_384


class Reading:
    """Raises what pymilvus raises; ``bounded`` translates. Every call carries what is left of the time."""

    def __init__(
        self, connection: Connection, release: RetrievalRelease, deadline: Deadline, batches: Batches
    ) -> None:
        self.layout = connection.layout
        self.connection = connection
        self._release = release
        self._deadline = deadline
        self._batches = batches
        per_revision = self.layout.partition_per_revision
        self._partition = partition_of(release.kb_revision) if per_revision else None

    async def query(
        self, expression: str, fields: list[str], limit: int, consistency: str | None = None
    ) -> list[dict[str, Any]]:
        """Up to ``limit`` rows that match, in no order."""
        rows: list[dict[str, Any]] = await self.connection.reader.query(
            filter=expression,
            output_fields=fields,
            limit=min(limit, LARGEST_LIMIT),
            **self.call(consistency),
        )
        return rows

    async def count(self, expression: str) -> int:
        """How many rows match."""
        rows = await self.connection.reader.query(
            filter=expression, output_fields=["count(*)"], **self.call()
        )
        return int(rows[0]["count(*)"])

    async def search(
        self, question: object, anns_field: str, expression: str, fields: list[str], limit: int
    ) -> Rows:
        """Up to ``limit`` hits, best first. Others who search the same now may go with the same call."""
        dense = anns_field == "vector"
        search = Search(
            connection=self.connection,
            collection=self._release.collection,
            partition=self._partition,
            anns_field=anns_field,
            metric="COSINE" if dense else "BM25",
            expression=expression,
            fields=tuple(fields),
            limit=min(limit, LARGEST_LIMIT),
            params=tuple(self.dense_params(limit).items()) if dense else (),
            consistency=self.layout.consistency,
        )
        return await self._batches.ask(search, question, self._deadline)

    async def expect_revision(self, *, again: bool = False) -> None:
        """That the release's revision is there, and whole. Looks once a connection, or ``again``.

        Raises VectorStoreUnavailable, EmbeddingSpaceMismatch.
        """
        key = (self._release.collection, self._release.kb_revision)
        if key in self.connection.revisions and not again:
            return
        self.connection.revisions.discard(key)
        if self.layout.partition_per_revision:
            there = await self._has_partition()
        else:
            there = await self._has_seal()
        if not there:
            raise VectorStoreUnavailable("the release's revision is not in the vector store")
        self.connection.revisions.add(key)

    async def _has_partition(self) -> bool:
        return bool(
            await self.connection.reader.has_partition(
                self._release.collection,
                self._partition,
                timeout=self._deadline.remaining(),
                retry_on_rate_limit=False,
            )
        )

    async def _has_seal(self) -> bool:
        collection = self._release.collection
        found = await self.connection.reader.describe_collection(
            collection, timeout=self._deadline.remaining(), retry_on_rate_limit=False
        )
        check_fields(found, self._release.space.dimension, self.layout)
        # what was sealed a moment ago may not show yet at the usual consistency
        for consistency in (self.layout.consistency, "Strong"):
            if await self.query(seal_filter(self._release.kb_revision), ["row_id"], 1, consistency):
                return True
        return False

    def dense_params(self, limit: int) -> dict[str, Any]:
        """The dense index's parameters; ef must not be smaller than the limit."""
        params = dict(self.layout.dense_search)
        if "ef" in params:
            params["ef"] = max(params["ef"], min(limit, LARGEST_LIMIT))
        return params

    def call(self, consistency: str | None = None) -> dict[str, Any]:
        """What every call of this question carries: the place, the time left, the consistency."""
        level = consistency or self.layout.consistency
        return {
            "collection_name": self._release.collection,
            "timeout": self._deadline.remaining(),
            "retry_on_rate_limit": False,
            **({"partition_names": [self._partition]} if self._partition else {}),
            **({"consistency_level": level} if level else {}),
        }
