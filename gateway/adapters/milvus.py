"""MilvusStore: chunks in Milvus, the same code for Milvus Lite and for a server.

Each embedding space has one collection. On Lite each revision is a partition of it (the best speed-up
Lite has, and dropping one touches nothing else); on a server ``kb_id`` is the partition key. Every read
carries the whole forced filter and, on Lite, the partition; a read of a revision that isn't there raises
VectorStoreUnavailable instead of finding nothing.

What BM25 scores mean on Lite (read from its source): document frequencies and average length are
counted per segment, and a segment belongs to one partition. So they never cross revisions, knowledge
bases or tenants; but they do count passages of the revision that this caller may not see, and a revision
whose rows were flushed in several parts has one baseline for each. Hence scores here order passages and
mean nothing else: the evidence gate counts terms per ACL class in the catalog (``retrieval.lexicon``).
Lite returns them negative. On a server the statistics are those of a segment shared by a bucket of
knowledge bases.

Lite's BM25 search also walks the keys of the whole collection before it looks at one partition: retired
revisions make it slower until they are dropped.

Lite allows one writer a collection and loses rows when a flush meets an insert, so writes queue here.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from pymilvus import AsyncMilvusClient, MilvusClient

from gateway.adapters.milvus_client import Connection, Connector, Endpoint, bounded, translated
from gateway.adapters.milvus_filter import checked_hit, chunk_filter, revision_filter, scope_filter
from gateway.adapters.milvus_layout import LITE, MilvusLayout, make_collection, partition_of
from gateway.adapters.milvus_rows import OUTPUT_FIELDS, as_chunk, as_entity, batches, words_of
from gateway.context import Deadline
from gateway.errors import EmbeddingSpaceMismatch, VectorStoreUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit, Row

T = TypeVar("T")

_LARGEST_LIMIT = 16_384


class MilvusStore:
    """ChunkReader and ChunkWriter over pymilvus.

    ``endpoint`` is asked before each call and raises VectorStoreUnavailable while there is none; when it
    names another one (a restarted child), the store reconnects by itself.
    """

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        layout: MilvusLayout = LITE,
        *,
        write_cap_s: float = 60.0,
        batch_rows: int = 200,
    ) -> None:
        self._connector = Connector(endpoint)
        self._layout = layout
        self._write_cap_s = write_cap_s
        self._batch_rows = batch_rows
        self._writing = anyio.Lock()

    # reading

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        if len(vector) != query.release.space.dimension:
            raise EmbeddingSpaceMismatch()
        found = await self._search(query, "vector", list(vector), limit, deadline)
        # float32 arithmetic may leave [-1, 1] by a hair
        return _ordered([Hit(chunk, max(-1.0, min(1.0, score))) for chunk, score, _ in found])

    async def lexical(
        self, query: ScopedQuery, terms: Sequence[str], limit: int, deadline: Deadline
    ) -> list[Hit]:
        found = await self._search(query, "bm25", words_of(terms), limit, deadline)
        hits = [Hit(chunk, score * self._layout.lexical_sign, vector) for chunk, score, vector in found]
        return _ordered([hit for hit in hits if hit.score > 0])

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        wanted = list(dict.fromkeys(chunk_ids))
        expression = chunk_filter(query, wanted)
        if not wanted:
            return []

        async def ask(client: AsyncMilvusClient, place: dict[str, Any]) -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = await client.query(
                filter=expression, output_fields=OUTPUT_FIELDS, limit=len(wanted), **place
            )
            return rows

        rows = await self._read(query.release.collection, query.release.kb_revision, deadline, ask)
        return [checked_hit(query, as_chunk(row)) for row in rows]

    async def _search(
        self, query: ScopedQuery, anns_field: str, asked: object, limit: int, deadline: Deadline
    ) -> list[tuple[Chunk, float, Vector | None]]:
        expression = scope_filter(query)  # before anything else: an unscoped query touches no store
        if limit <= 0 or not asked:
            return []
        dense = anns_field == "vector"
        search_params = {
            "metric_type": "COSINE" if dense else "BM25",
            "params": dict(self._layout.dense_search) if dense else {},
        }

        async def ask(client: AsyncMilvusClient, place: dict[str, Any]) -> list[dict[str, Any]]:
            found: list[list[dict[str, Any]]] = await client.search(
                data=[asked],
                anns_field=anns_field,
                filter=expression,
                limit=min(limit, _LARGEST_LIMIT),
                output_fields=OUTPUT_FIELDS if dense else [*OUTPUT_FIELDS, "vector"],
                search_params=search_params,
                **place,
            )
            return found[0]

        rows = await self._read(query.release.collection, query.release.kb_revision, deadline, ask)
        return [
            (
                checked_hit(query, as_chunk(row["entity"])),
                float(row["distance"]),
                None if dense else tuple(row["entity"]["vector"]),
            )
            for row in rows
        ]

    async def _read(
        self,
        collection: str,
        kb_revision: str,
        deadline: Deadline,
        ask: Callable[[AsyncMilvusClient, dict[str, Any]], Awaitable[list[dict[str, Any]]]],
    ) -> list[dict[str, Any]]:
        async def call() -> list[dict[str, Any]]:
            connection = await self._connector.connected()
            place: dict[str, Any] = {"collection_name": collection, "retry_on_rate_limit": False}
            if self._layout.consistency:
                place["consistency_level"] = self._layout.consistency
            partition = partition_of(kb_revision)
            if self._layout.partition_per_revision:
                place["partition_names"] = [partition]
                # Lite answers a search in a missing partition with nothing at all
                await self._expect_partition(connection, collection, partition, deadline)
            rows = await ask(connection.reader, place | {"timeout": deadline.remaining()})
            if not rows and self._layout.partition_per_revision:
                await self._expect_partition(connection, collection, partition, deadline)
            return rows

        return await bounded(deadline, call)

    async def _expect_partition(
        self, connection: Connection, collection: str, partition: str, deadline: Deadline
    ) -> None:
        key = (collection, partition)
        if key in connection.partitions:
            return
        if not await connection.reader.has_partition(
            collection, partition, timeout=deadline.remaining(), retry_on_rate_limit=False
        ):
            raise VectorStoreUnavailable("the release's revision is not in the vector store")
        connection.partitions.add(key)

    async def ping(self, deadline: Deadline) -> None:
        """For readiness: one small round trip. Raises VectorStoreUnavailable, DeadlineExceeded."""

        async def call() -> None:
            connection = await self._connector.connected()
            await connection.reader.get_server_version(timeout=deadline.remaining())

        await bounded(deadline, call)

    # writing

    async def prepare(self, space: EmbeddingSpace) -> str:
        """Raises EmbeddingSpaceMismatch when the collection exists with another dimension."""
        await self._write(lambda client: make_collection(client, space, self._layout, self._write_cap_s))
        return space.collection

    async def write(self, space: EmbeddingSpace, kb_revision: str, rows: Sequence[Row]) -> None:
        """Raises InvariantViolated before the first row is sent when any of them belongs elsewhere."""
        entities = await anyio.to_thread.run_sync(
            lambda: [as_entity(row, space, kb_revision) for row in rows]
        )
        place = await self._made_partition(space, kb_revision)
        for batch in batches(entities, self._batch_rows):
            await self._write(functools.partial(self._upsert, place, batch))

    async def seal(self, space: EmbeddingSpace, kb_revision: str) -> None:
        await self._made_partition(space, kb_revision)

        def call(client: MilvusClient) -> None:
            client.flush(space.collection, timeout=self._write_cap_s)
            client.load_collection(space.collection, timeout=self._write_cap_s)
            if self._layout.partition_per_revision:
                # Lite builds a segment's BM25 index in the first search, which no reader should pay for.
                client.search(
                    space.collection,
                    data=["x"],
                    anns_field="bm25",
                    filter=revision_filter(kb_revision),
                    partition_names=[partition_of(kb_revision)],
                    limit=1,
                    timeout=self._write_cap_s,
                )

        await self._write(call)

    async def count(self, space: EmbeddingSpace, kb_revision: str) -> int:
        expression = revision_filter(kb_revision)
        partition = partition_of(kb_revision)

        def call(client: MilvusClient) -> int:
            place: dict[str, Any] = {"collection_name": space.collection, "timeout": self._write_cap_s}
            if self._layout.partition_per_revision:
                if not client.has_partition(partition_name=partition, **place):
                    return 0
                place["partition_names"] = [partition]
            if self._layout.consistency:
                place["consistency_level"] = self._layout.consistency
            rows = client.query(filter=expression, output_fields=["count(*)"], **place)
            return int(rows[0]["count(*)"])

        return await self._write(call)

    async def drop(self, space: EmbeddingSpace, kb_revision: str) -> None:
        expression = revision_filter(kb_revision)
        partition = partition_of(kb_revision)

        def call(client: MilvusClient) -> None:
            place: dict[str, Any] = {"collection_name": space.collection, "timeout": self._write_cap_s}
            if not client.has_collection(**place):
                return
            if not self._layout.partition_per_revision:
                client.delete(filter=expression, **place)
            elif client.has_partition(partition_name=partition, **place):
                client.drop_partition(partition_name=partition, **place)

        self._connector.forget(space.collection, partition)
        await self._write(call)

    async def _made_partition(self, space: EmbeddingSpace, kb_revision: str) -> dict[str, Any]:
        place = {"collection_name": space.collection}
        if not self._layout.partition_per_revision:
            return place
        partition = partition_of(kb_revision)

        def call(client: MilvusClient) -> None:
            if not client.has_partition(space.collection, partition, timeout=self._write_cap_s):
                client.create_partition(space.collection, partition, timeout=self._write_cap_s)

        await self._write(call)
        return place | {"partition_name": partition}

    def _upsert(self, place: dict[str, Any], batch: list[dict[str, Any]], client: MilvusClient) -> None:
        client.upsert(data=batch, timeout=self._write_cap_s, **place)

    async def _write(self, call: Callable[[MilvusClient], T]) -> T:
        async with self._writing:
            connection = await self._connector.connected()
            with translated():
                # not abandoned on cancel: the next writer must not meet a half-done one
                return await anyio.to_thread.run_sync(call, connection.writer)

    async def aclose(self) -> None:
        """Closes the connection; calls in flight end with VectorStoreUnavailable."""
        await self._connector.aclose()


def _ordered(hits: list[Hit]) -> list[Hit]:
    """Best first; equals by id, so that the order is the same on every run."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.chunk_id))
