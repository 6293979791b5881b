"""OpenedVectors: a collection as LangChain's Milvus vector store, with clients that never try twice."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from gateway.adapters.milvus.client import (
    Connection,
    Endpoint,
    client_arguments,
    retry_nothing,
    translated,
    uninterrupted,
)
from gateway.adapters.milvus.rows import OUTPUT_FIELDS
from gateway.errors import InvariantViolated, VectorStoreUnavailable

if TYPE_CHECKING:
    from langchain_milvus import Milvus

_CLOSE_CAP_S = 2.0
_FIELD = "vector"


def installed() -> bool:
    """Whether the extra is there; loads nothing."""
    return find_spec("langchain_milvus") is not None


def load() -> None:
    """Loads the framework, which takes seconds. Raises VectorStoreUnavailable when it can't be."""
    try:
        import langchain_milvus  # noqa: F401 - for the next one who needs it
    except ImportError as error:
        raise VectorStoreUnavailable("the vectorstore mode is not installed here") from error


class OpenedVectors:
    """Reads only. ``metric`` is that of the index which is there, as Milvus says it."""

    def __init__(self, endpoint: Endpoint, metric: str, vectors: "Milvus") -> None:
        self.endpoint = endpoint
        self.metric = metric
        self._vectors = vectors

    @classmethod
    async def open(cls, connection: Connection, collection: str) -> "OpenedVectors":
        """Raises VectorStoreUnavailable without the extra, the collection or its index."""
        with translated():
            opened = await anyio.to_thread.run_sync(_opened, connection, collection)
            try:
                reader = opened._vectors.aclient
                await uninterrupted(reader.__aenter__())
                retry_nothing(reader, opened._vectors.client)
            except BaseException:
                await opened.aclose()
                raise
        return opened

    async def search(
        self, vector: Sequence[float], scope: str, limit: int, params: dict[str, Any], call: dict[str, Any]
    ) -> list[tuple[dict[str, Any], float]]:
        """Up to ``limit`` rows under the filter ``scope``, each with the number that ``metric`` explains.

        ``call`` goes to pymilvus, but for the collection's name. Raises what pymilvus raises.
        """
        call = {name: value for name, value in call.items() if name != "collection_name"}
        found = await self._vectors.asimilarity_search_with_score_by_vector(
            list(vector),
            k=limit,
            param={"metric_type": self.metric, "params": params},
            expr=scope,
            **call,
        )
        return [({**document.metadata, "content": document.page_content}, n) for document, n in found]

    async def aclose(self) -> None:
        """Closes both clients; shielded and bounded."""
        with anyio.move_on_after(_CLOSE_CAP_S, shield=True):
            await self._vectors.aclient.close()
            await anyio.to_thread.run_sync(self._vectors.client.close, abandon_on_cancel=True)


class _Unasked:
    """The embedder that the framework wants to have: questions come as vectors here."""

    def __getattr__(self, name: str) -> Any:
        raise InvariantViolated("the vector store was about to embed something")


def _opened(connection: Connection, collection: str) -> OpenedVectors:
    """Blocks. Looks first: the framework makes what is missing, and finds nothing where nothing is."""
    load()
    from langchain_milvus import Milvus

    if not connection.writer.has_collection(collection):
        raise VectorStoreUnavailable("the vectorstore mode doesn't find the release's collection")
    indexes = (
        connection.writer.describe_index(collection, name)
        for name in connection.writer.list_indexes(collection)
    )
    metric = next((index["metric_type"] for index in indexes if index["field_name"] == _FIELD), None)
    if metric is None:
        raise VectorStoreUnavailable("the collection has no index to search by vectors")
    vectors = Milvus(
        _Unasked(),
        collection,
        connection_args=client_arguments(connection.endpoint),
        primary_field="row_id",
        text_field="content",
        vector_field=_FIELD,
        search_params={"metric_type": metric, "params": {}},
    )
    vectors.fields = list(OUTPUT_FIELDS)  # else every hit brings its words and their ids along
    return OpenedVectors(connection.endpoint, str(metric), vectors)
