"""RevisionWriter: what one write does to the store, call by call; it blocks, so it runs in a thread."""

from collections.abc import Sequence
from typing import Any

from gateway.adapters.milvus.client import Connection
from gateway.adapters.milvus.filter import revision_filter
from gateway.adapters.milvus.layout import expect_collection, make_collection, partition_of
from gateway.adapters.milvus.seal import rows_filter, seal_row
from gateway.release.model import EmbeddingSpace

# A server searches rows that it hasn't flushed exactly as long as they are fewer than some 5,000 (then it
# builds an interim index that misses some); a flush takes seconds and leaves one more small segment.
_MOST_UNFLUSHED = 2_000
#: reads every acknowledged write of any client; takes some 200 ms on a server
STRONG = "Strong"


class RevisionWriter:
    """One revision of one space. Every call to the server is bounded by ``cap_s``.

    Raises what pymilvus raises.
    """

    def __init__(self, connection: Connection, space: EmbeddingSpace, kb_revision: str, cap_s: float) -> None:
        self._client = connection.writer
        self._layout = connection.layout
        self._space = space
        self._kb_revision = kb_revision
        self._cap_s = cap_s
        self._place = {"collection_name": space.collection, "timeout": cap_s}
        self._partition = partition_of(kb_revision)

    def prepare(self, *, may_create: bool) -> None:
        """Raises EmbeddingSpaceMismatch, and VectorStoreUnavailable for what it may not make."""
        made = make_collection if may_create else expect_collection
        made(self._client, self._space, self._layout, self._cap_s)

    def make_partition(self) -> None:
        if self._layout.partition_per_revision and not self._has_partition():
            self._client.create_partition(partition_name=self._partition, **self._place)

    def write(self, entities: Sequence[dict[str, Any]]) -> None:
        """Replaces rows; on Lite the partition must be there."""
        if self._layout.partition_per_revision:
            self._client.upsert(data=list(entities), partition_name=self._partition, **self._place)
        elif self._layout.upsert:
            self._client.upsert(data=list(entities), **self._place)
        else:
            self._client.delete(ids=[entity["row_id"] for entity in entities], **self._place)
            self._client.insert(data=list(entities), **self._place)

    def seal(self) -> None:
        """Durable and readable by any client when it returns."""
        if self._layout.partition_per_revision:
            self._flush()
            self._warm()
            return
        self.write([seal_row(self._space, self._kb_revision, bm25=self._layout.bm25)])
        # what this Strong read has seen, every later read of the same node sees
        if max(self.count(), self._unflushed()) > _MOST_UNFLUSHED:
            self._flush()

    def count(self) -> int:
        """Rows of the revision, whoever wrote them; 0 also when there is no such revision."""
        place: dict[str, Any] = dict(self._place)
        if self._layout.partition_per_revision:
            if not self._has_partition():
                return 0
            place["partition_names"] = [self._partition]
        if self._layout.consistency:
            place["consistency_level"] = STRONG
        rows = self._client.query(filter=rows_filter(self._kb_revision), output_fields=["count(*)"], **place)
        return int(rows[0]["count(*)"])

    def drop(self) -> None:
        if not self._client.has_collection(**self._place):
            return
        if not self._layout.partition_per_revision:
            self._client.delete(filter=revision_filter(self._kb_revision), **self._place)
        elif self._has_partition():
            self._client.drop_partition(partition_name=self._partition, **self._place)

    def _has_partition(self) -> bool:
        return bool(self._client.has_partition(partition_name=self._partition, **self._place))

    def _flush(self) -> None:
        self._client.flush(**self._place)
        self._client.load_collection(**self._place)

    def _unflushed(self) -> int:
        """Rows of the collection that are in memory only, or fewer: deleted ones count as flushed."""
        stored = self._client.query(
            filter="", output_fields=["count(*)"], consistency_level=self._layout.consistency, **self._place
        )
        flushed = self._client.get_collection_stats(**self._place)
        return int(stored[0]["count(*)"]) - int(flushed["row_count"])

    def _warm(self) -> None:
        # Lite builds a segment's BM25 index in the first search, which no reader should pay for.
        self._client.search(
            data=["x"],
            anns_field="bm25",
            filter=revision_filter(self._kb_revision),
            partition_names=[self._partition],
            limit=1,
            **self._place,
        )
