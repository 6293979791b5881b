"""Search: all of a search but its questions and its time, so that it can be told whether two are the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.adapters.milvus.client import Connection
from gateway.errors import InvariantViolated, VectorStoreUnavailable

#: hits of one question, best first, each ``{"entity": fields, "distance": score}``
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Search:
    """Two are equal when every part is, letter by letter, the connection included.

    ``expression`` is the whole forced filter. ``partition`` and ``consistency`` are None where the store
    has none.
    """

    connection: Connection
    collection: str
    partition: str | None
    anns_field: str
    metric: str
    expression: str
    fields: tuple[str, ...]
    limit: int
    params: tuple[tuple[str, Any], ...]
    consistency: str | None

    async def ask(self, questions: Sequence[object], timeout_s: float) -> list[Rows]:
        """One call for all questions; the hits of each, in their order. Nothing else decides what is read.

        Raises what pymilvus raises, VectorStoreUnavailable on a connection that has been closed,
        InvariantViolated when the store answers more or fewer questions than it was asked.
        """
        if self.connection.closed:
            raise VectorStoreUnavailable()
        found: list[Rows] = await self.connection.reader.search(
            data=list(questions),
            collection_name=self.collection,
            anns_field=self.anns_field,
            filter=self.expression,
            limit=self.limit,
            output_fields=list(self.fields),
            search_params={"metric_type": self.metric, "params": dict(self.params)},
            timeout=timeout_s,
            retry_on_rate_limit=False,
            **({"partition_names": [self.partition]} if self.partition else {}),
            **({"consistency_level": self.consistency} if self.consistency else {}),
        )
        if len(found) != len(questions):
            raise InvariantViolated("the vector store answered another number of questions than it was asked")
        return found
