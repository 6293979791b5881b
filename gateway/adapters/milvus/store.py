"""MilvusStore: chunks in Milvus, the same code for Milvus Lite and for a server.

Each embedding space has one collection. On Lite each revision is a partition of it (the best speed-up
Lite has, and dropping one touches nothing else); on a server ``kb_id`` is the partition key, and a seal
row says that a revision is there and whole. Every read carries the whole forced filter and, on Lite, the
partition; a read of a revision that isn't there raises VectorStoreUnavailable instead of finding nothing.

What BM25 scores mean on Lite (read from its source): document frequencies and average length are
counted per segment, and a segment belongs to one partition. So they never cross revisions, knowledge
bases or tenants; but they do count passages of the revision that this caller may not see, and a revision
whose rows were flushed in several parts has one baseline for each. Hence scores here order passages and
mean nothing else: the evidence gate counts terms per ACL class in the catalog (``retrieval.lexicon``).
Lite returns them negative. On a server from 2.5 on the statistics are those of a segment shared by a
bucket of knowledge bases; before 2.5 the gateway scores words itself (``words``).

Lite's BM25 search also walks the keys of the whole collection before it looks at one partition: retired
revisions make it slower until they are dropped.

Lite allows one writer a collection and loses rows when a flush meets an insert, so writes queue here.

Questions read a server with consistency Bounded (3 ms; Strong costs 200 ms and more). A revision is
sealed when a Strong read has seen all of it, and then any client's Bounded reads see it: they go to the
same node, which never steps back. With several in-memory replicas that is promised only once the server's
graceful time (5 s) is over; a reader that doesn't see the seal reads Strong before it believes that.
"""

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from gateway.adapters.milvus.accounts import excess_privileges, make_runtime_account
from gateway.adapters.milvus.batches import Batches
from gateway.adapters.milvus.client import Connection, Connector, Endpoint, bounded, translated
from gateway.adapters.milvus.filter import checked_hit, chunk_filter, scope_filter
from gateway.adapters.milvus.layout import MilvusLayout, lite_layout
from gateway.adapters.milvus.reading import Reading
from gateway.adapters.milvus.rows import OUTPUT_FIELDS, as_chunk, as_entity, batches, word_of, words_of
from gateway.adapters.milvus.words import search_words
from gateway.adapters.milvus.writer import RevisionWriter
from gateway.context import Deadline
from gateway.errors import EmbeddingSpaceMismatch
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.embedding import Vector
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import IMMEDIATE, Hit, Row

T = TypeVar("T")

_WITH_VECTOR = [*OUTPUT_FIELDS, "vector"]


class MilvusStore:
    """ChunkReader and ChunkWriter over pymilvus.

    ``endpoint`` is asked before each call and raises VectorStoreUnavailable while there is none; when it
    names another one (a restarted child), the store reconnects by itself. ``layout_for`` is asked with
    the server's version, once a connection. Without ``may_create`` it makes no collection and no index.
    """

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        layout_for: Callable[[str], MilvusLayout] = lite_layout,
        *,
        may_create: bool = True,
        write_cap_s: float = 60.0,
        batch_rows: int = 200,
        listed_rows: int = 4_096,
        search_batch: int = 16,
    ) -> None:
        """``batch_rows`` are written at once, ``listed_rows`` read at once to list a collection, and up to
        ``search_batch`` questions asked in one call.
        """
        self._connector = Connector(endpoint, layout_for)
        self._may_create = may_create
        self._write_cap_s = write_cap_s
        self._batch_rows = batch_rows
        self._listed_rows = listed_rows
        self._batches = Batches(search_batch)
        self._writing = anyio.Lock()

    @property
    def consistency(self) -> str:
        layout = self._connector.layout
        return (layout.consistency if layout else None) or IMMEDIATE

    # reading

    async def dense(self, query: ScopedQuery, vector: Vector, limit: int, deadline: Deadline) -> list[Hit]:
        scope = scope_filter(query)  # before anything else: an unscoped query touches no store
        if len(vector) != query.release.space.dimension:
            raise EmbeddingSpaceMismatch()
        if limit <= 0:
            return []
        rows = await self.read(
            query,
            deadline,
            lambda reading: reading.search(list(vector), "vector", scope, OUTPUT_FIELDS, limit),
        )
        return ordered(
            [Hit(checked_hit(query, as_chunk(row["entity"])), _cosine(row["distance"])) for row in rows]
        )

    async def lexical(
        self, query: ScopedQuery, terms: Sequence[str], limit: int, deadline: Deadline
    ) -> list[Hit]:
        scope = scope_filter(query)
        words = list(dict.fromkeys(map(word_of, terms)))
        if not words or limit <= 0:
            return []

        async def ask(reading: Reading) -> list[tuple[dict[str, Any], float]]:
            if not reading.layout.bm25:
                return await search_words(reading, scope, words, _WITH_VECTOR, limit)
            rows = await reading.search(words_of(terms), "bm25", scope, _WITH_VECTOR, limit)
            sign = reading.layout.lexical_sign
            return [(row["entity"], float(row["distance"]) * sign) for row in rows]

        found = await self.read(query, deadline, ask)
        hits = [Hit(checked_hit(query, as_chunk(row)), score, tuple(row["vector"])) for row, score in found]
        return ordered([hit for hit in hits if hit.score > 0])

    async def fetch(self, query: ScopedQuery, chunk_ids: Sequence[str], deadline: Deadline) -> list[Chunk]:
        wanted = list(dict.fromkeys(chunk_ids))
        expression = chunk_filter(query, wanted)
        if not wanted:
            return []
        rows = await self.read(
            query, deadline, lambda reading: reading.query(expression, OUTPUT_FIELDS, len(wanted))
        )
        return [checked_hit(query, as_chunk(row)) for row in rows]

    async def permitted(self, query: ScopedQuery, deadline: Deadline) -> int:
        expression = scope_filter(query)

        async def ask(reading: Reading) -> list[int]:
            count = await reading.count(expression)
            return [count] if count else []

        return sum(await self.read(query, deadline, ask))

    async def read(
        self, query: ScopedQuery, deadline: Deadline, ask: Callable[[Reading], Awaitable[list[T]]]
    ) -> list[T]:
        """What ``ask`` finds inside the deadline; nothing found is believed only of a revision that is there.

        Raises VectorStoreUnavailable, DeadlineExceeded, EmbeddingSpaceMismatch.
        """

        async def call() -> list[T]:
            connection = await self._connector.connected()
            reading = Reading(connection, query.release, deadline, self._batches)
            await reading.expect_revision()
            rows = await ask(reading)
            if not rows:  # it may have been dropped since
                await reading.expect_revision(again=True)
            return rows

        return await bounded(deadline, call)

    async def ping(self, deadline: Deadline) -> None:
        """For readiness: one small round trip. Raises VectorStoreUnavailable, DeadlineExceeded."""

        async def call() -> None:
            connection = await self._connector.connected()
            await connection.reader.get_server_version(timeout=deadline.remaining())

        await bounded(deadline, call)

    def tell_searches(self, whom: Callable[[int], None]) -> None:
        """For metrics: ``whom`` is told of each search how many questions it brings."""
        self._batches.on_call = whom

    # writing

    async def prepare(self, space: EmbeddingSpace) -> str:
        """Raises EmbeddingSpaceMismatch when the name's collection is of another space, and
        VectorStoreUnavailable when something is missing that this store may not create.
        """
        await self._revision(space, "", lambda writer: writer.prepare(may_create=self._may_create))
        return space.collection

    async def write(self, space: EmbeddingSpace, kb_revision: str, rows: Sequence[Row]) -> None:
        """Raises InvariantViolated before the first row is sent when any of them belongs elsewhere."""
        with translated():
            layout = (await self._connector.connected()).layout
        entities = await anyio.to_thread.run_sync(
            lambda: [as_entity(row, space, kb_revision, bm25=layout.bm25) for row in rows]
        )
        await self._revision(space, kb_revision, lambda writer: writer.make_partition())
        for batch in batches(entities, self._batch_rows):
            await self._revision(space, kb_revision, functools.partial(_write, batch))

    async def seal(self, space: EmbeddingSpace, kb_revision: str) -> None:
        def sealed(writer: RevisionWriter) -> None:
            writer.make_partition()
            writer.seal()

        await self._revision(space, kb_revision, sealed)

    async def count(self, space: EmbeddingSpace, kb_revision: str) -> int:
        return await self._revision(space, kb_revision, lambda writer: writer.count())

    async def drop(self, space: EmbeddingSpace, kb_revision: str) -> None:
        self._connector.forget(space.collection, kb_revision)
        await self._revision(space, kb_revision, lambda writer: writer.drop())

    async def delete_document(
        self, space: EmbeddingSpace, kb_revision: str, tenant: str, kb_id: str, document_id: str
    ) -> int:
        return await self._revision(
            space, kb_revision, lambda writer: writer.delete_document(tenant, kb_id, document_id)
        )

    async def revisions(self, space: EmbeddingSpace) -> Mapping[str, int]:
        return await self._revision(space, "", lambda writer: writer.revisions(self._listed_rows))

    async def _revision(
        self, space: EmbeddingSpace, kb_revision: str, call: Callable[[RevisionWriter], T]
    ) -> T:
        return await self._in_turn(
            lambda connection: call(RevisionWriter(connection, space, kb_revision, self._write_cap_s))
        )

    async def _in_turn(self, call: Callable[[Connection], T]) -> T:
        async with self._writing:
            connection = await self._connector.connected()
            with translated():
                # not abandoned on cancel: the next writer must not meet a half-done one
                return await anyio.to_thread.run_sync(call, connection)

    # the account

    async def privileges(self) -> list[str]:
        """What this account may do that a runtime account must not; empty means fit.

        A server without authorization is one entry that says so. Changes nothing.
        """
        return await self._in_turn(lambda connection: excess_privileges(connection, self._write_cap_s))

    async def grant_runtime(self, user: str, password: str) -> None:
        """For ``migrate``: makes ``user`` an account that can read and write rows and nothing else."""
        await self._in_turn(
            lambda connection: make_runtime_account(connection, user, password, self._write_cap_s)
        )

    async def server_version(self) -> str:
        """What the server calls itself. Raises VectorStoreUnavailable."""
        return (await self._connector.connected()).version

    async def aclose(self) -> None:
        """Closes the connection; calls in flight end with VectorStoreUnavailable."""
        await self._batches.aclose()
        await self._connector.aclose()


def _write(batch: Sequence[dict[str, Any]], writer: RevisionWriter) -> None:
    writer.write(batch)


def _cosine(distance: float) -> float:
    """float32 arithmetic may leave [-1, 1] by a hair, and its last bits depend on what is asked together:
    equal passages stay equal.
    """
    return max(-1.0, min(1.0, round(float(distance), 6)))


def ordered(hits: list[Hit]) -> list[Hit]:
    """Best first; equals by id, so that the order is the same on every run."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.chunk_id))
