"""RevisionWriter: what one write does to the store, call by call; it blocks, so it runs in a thread."""

import string
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.adapters.milvus.client import Connection
from gateway.adapters.milvus.filter import literal, revision_filter
from gateway.adapters.milvus.layout import expect_collection, make_collection, partition_of
from gateway.adapters.milvus.seal import EVERY_ROW, rows_filter, seal_filter, seal_row
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
        if not self._is_sealed():  # replacing it would leave readers without one for a moment
            self.write([seal_row(self._space, self._kb_revision, bm25=self._layout.bm25)])
        # what this Strong read has seen, every later read of the same node sees
        if max(self.count(), self._unflushed()) > _MOST_UNFLUSHED:
            self._flush()

    def count(self) -> int:
        """Rows of the revision, whoever wrote them; 0 also when there is no such revision."""
        if self._layout.partition_per_revision and not self._has_partition():
            return 0
        return self._counted(rows_filter(self._kb_revision), **self._within())

    def delete_document(self, tenant: str, kb_id: str, document_id: str) -> int:
        """How many rows there were."""
        if not self._client.has_collection(**self._place):
            return 0
        if self._layout.partition_per_revision and not self._has_partition():
            return 0
        names = {"tenant_id": tenant, "kb_id": kb_id, "document_id": document_id}
        clauses = [rows_filter(self._kb_revision)]
        clauses += [f"{field} == {literal(value, field)}" for field, value in names.items()]
        rows = " and ".join(clauses)
        found = self._counted(rows, **self._within())
        if not found:
            return 0
        if self._layout.partition_per_revision:
            self._client.delete(filter=rows, partition_name=self._partition, **self._place)
            self._flush()
        else:
            self._client.delete(filter=rows, **self._place)
        return found

    def revisions(self, most_rows: int) -> Mapping[str, int]:
        """Read in parts of ``most_rows``, by the first characters of the row ids: those are hashes, so that
        nothing depends on the order in which rows come.
        """
        found: Counter[str] = Counter()
        if self._client.has_collection(**self._place):
            beginnings = [""]
            while beginnings:
                beginning = beginnings.pop()
                rows = f'{EVERY_ROW} and row_id like "{beginning}%"'
                if self._counted(rows) > most_rows:
                    beginnings += [beginning + digit for digit in string.hexdigits.lower()[:16]]
                else:
                    found.update(self._revisions_of(rows))
        return found

    def _revisions_of(self, rows: str) -> Iterator[str]:
        place = self._reading()
        for row in self._client.query(filter=rows, output_fields=["kb_revision"], **place):
            yield row["kb_revision"]

    def _counted(self, rows: str, **place: Any) -> int:
        """How many rows match, as of every write that was acknowledged."""
        found = self._client.query(filter=rows, output_fields=["count(*)"], **self._reading(), **place)
        return int(found[0]["count(*)"])

    def _reading(self) -> dict[str, Any]:
        strong = {"consistency_level": STRONG} if self._layout.consistency else {}
        return self._place | strong

    def drop(self) -> None:
        if not self._client.has_collection(**self._place):
            return
        if not self._layout.partition_per_revision:
            self._client.delete(filter=revision_filter(self._kb_revision), **self._place)
        elif self._has_partition():
            self._client.drop_partition(partition_name=self._partition, **self._place)

    def _within(self) -> dict[str, Any]:
        return {"partition_names": [self._partition]} if self._layout.partition_per_revision else {}

    def _has_partition(self) -> bool:
        return bool(self._client.has_partition(partition_name=self._partition, **self._place))

    def _flush(self) -> None:
        self._client.flush(**self._place)
        self._client.load_collection(**self._place)

    def _is_sealed(self) -> bool:
        found = self._client.query(
            filter=seal_filter(self._kb_revision),
            output_fields=["row_id"],
            limit=1,
            consistency_level=STRONG,
            **self._place,
        )
        return bool(found)

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
