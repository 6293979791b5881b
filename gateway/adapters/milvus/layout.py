"""Layouts: how Lite and servers store a space's chunks, and the one place that makes collections."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient

from gateway.adapters.milvus.rows import MAX_TERMS, MAX_TEXT_BYTES, NUMBER_FIELDS, TEXT_FIELDS
from gateway.errors import EmbeddingSpaceMismatch, VectorStoreUnavailable
from gateway.release.model import EmbeddingSpace
from gateway.retrieval import bm25
from gateway.retrieval.chunk import stable_hash

#: buckets that knowledge bases are spread over by their ids; each one has segments of its own
_KB_BUCKETS = 16
_OLDEST_SERVER = (2, 3, 5)
_FIRST_WITH_BM25 = (2, 5)
_LONGEST_DESCRIPTION = 200


@dataclass(frozen=True, slots=True)
class MilvusLayout:
    """What a deployment's Milvus can do, and how it is used.

    ``bm25``: it scores words itself, and ``lexical_sign`` makes its scores positive; otherwise rows carry
    the ids of their terms and the gateway scores (``words``). ``upsert``: rows are replaced in one
    call; otherwise deleted and inserted. ``consistency`` is that of questions; None where every read sees
    every write. ``searches_at_once`` are calls of one and the same search: what is asked meanwhile goes
    together with the next one (``batches``).
    """

    dense_index: str
    dense_build: Mapping[str, Any] = field(default_factory=dict)
    dense_search: Mapping[str, Any] = field(default_factory=dict)
    partition_per_revision: bool = False
    bm25: bool = True
    lexical_sign: float = 1.0
    upsert: bool = True
    consistency: str | None = None
    searches_at_once: int = 4


#: only FLAT is exact under a filter on Lite
LITE = MilvusLayout(dense_index="FLAT", partition_per_revision=True, lexical_sign=-1.0, searches_at_once=1)
#: from 2.5 on. Its parts are those of Lite and of 2.3, but no such server was at hand to run it against.
SERVER = MilvusLayout(
    dense_index="HNSW",
    dense_build={"M": 16, "efConstruction": 200},
    # 100k rows, half of them permitted: recall@10 0.93 with 128, 0.98 with 256, for 1 ms more
    dense_search={"ef": 256},
    consistency="Bounded",
)
#: before 2.5. Upserts of 2.3.5 go astray: they ignore the partition key, and reads look where it says.
SERVER_WITHOUT_BM25 = MilvusLayout(
    dense_index=SERVER.dense_index,
    dense_build=SERVER.dense_build,
    dense_search=SERVER.dense_search,
    consistency=SERVER.consistency,
    bm25=False,
    upsert=False,
)


def lite_layout(version: str) -> MilvusLayout:
    """Lite's, whatever version it names."""
    return LITE


def server_layout(version: str) -> MilvusLayout:
    """By what the server calls itself, as in ``v2.3.5-lite``. Raises VectorStoreUnavailable when too old."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if numbers < _OLDEST_SERVER:
        raise VectorStoreUnavailable("the Milvus server is older than 2.3.5")
    return SERVER if numbers >= _FIRST_WITH_BM25 else SERVER_WITHOUT_BM25


def partition_of(kb_revision: str) -> str:
    """A revision's partition name: letters, digits and an underscore, whatever the revision is called."""
    return f"r_{stable_hash(kb_revision)}"


def collection_schema(space: EmbeddingSpace, layout: MilvusLayout) -> CollectionSchema:
    """One collection's fields: no dynamic ones, so that a misspelt field is an error and no empty result."""
    schema = MilvusClient.create_schema(
        auto_id=False, enable_dynamic_field=False, description=space.space_id[:_LONGEST_DESCRIPTION]
    )
    for name in TEXT_FIELDS:
        schema.add_field(
            name,
            DataType.VARCHAR,
            max_length=64 if name == "row_id" else MAX_TEXT_BYTES,
            is_primary=name == "row_id",
            is_partition_key=name == "kb_id" and not layout.partition_per_revision,
        )
    for name in NUMBER_FIELDS:
        schema.add_field(name, DataType.INT64)
    schema.add_field("risk", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=space.dimension)
    if layout.bm25:
        _add_bm25(schema)
    else:
        schema.add_field("terms", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
        schema.add_field("term_ids", DataType.ARRAY, element_type=DataType.INT64, max_capacity=MAX_TERMS)
    return schema


def _add_bm25(schema: CollectionSchema) -> None:
    schema.add_field(
        "terms",
        DataType.VARCHAR,
        max_length=MAX_TEXT_BYTES,
        enable_analyzer=True,
        analyzer_params={"tokenizer": "standard"},
    )
    schema.add_field("bm25", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(
        Function(
            name="terms_bm25",
            function_type=FunctionType.BM25,
            input_field_names=["terms"],
            output_field_names=["bm25"],
        )
    )


def make_collection(client: MilvusClient, space: EmbeddingSpace, layout: MilvusLayout, cap_s: float) -> None:
    """The space's collection with its indexes, loaded. Raises EmbeddingSpaceMismatch, MilvusException."""
    # Step by step, so that one that was interrupted is finished by the next.
    name = space.collection
    if not client.has_collection(name, timeout=cap_s):
        schema = collection_schema(space, layout)
        # one shard, so that what was written later is never seen earlier
        spread = {} if layout.partition_per_revision else {"num_shards": 1, "num_partitions": _KB_BUCKETS}
        client.create_collection(name, schema=schema, timeout=cap_s, **spread)
    check_collection(client.describe_collection(name, timeout=cap_s), space, layout)
    for anns_field in _missing_indexes(client, name, layout, cap_s):
        dense = anns_field == "vector"
        params = client.prepare_index_params()
        params.add_index(
            field_name=anns_field,
            index_name=anns_field,
            index_type=layout.dense_index if dense else "SPARSE_INVERTED_INDEX",
            metric_type="COSINE" if dense else "BM25",
            params=dict(layout.dense_build) if dense else {"bm25_k1": bm25.K1, "bm25_b": bm25.B},
        )
        client.create_index(name, params, timeout=cap_s)
    client.load_collection(name, timeout=cap_s)


def expect_collection(
    client: MilvusClient, space: EmbeddingSpace, layout: MilvusLayout, cap_s: float
) -> None:
    """The collection that ``migrate`` has made, loaded; makes nothing.

    Raises VectorStoreUnavailable when it or an index is missing, EmbeddingSpaceMismatch, MilvusException.
    """
    name = space.collection
    if not client.has_collection(name, timeout=cap_s):
        raise VectorStoreUnavailable(f"the collection {name} is missing: run `qa-gateway migrate`")
    check_collection(client.describe_collection(name, timeout=cap_s), space, layout)
    if _missing_indexes(client, name, layout, cap_s):
        raise VectorStoreUnavailable(f"the collection {name} lacks an index: run `qa-gateway migrate`")
    client.load_collection(name, timeout=cap_s)


def _missing_indexes(client: MilvusClient, name: str, layout: MilvusLayout, cap_s: float) -> list[str]:
    present = set(client.list_indexes(name, timeout=cap_s))
    return [one for one in ("vector", *(["bm25"] if layout.bm25 else [])) if one not in present]


def check_collection(found: Mapping[str, Any], space: EmbeddingSpace, layout: MilvusLayout) -> None:
    """A described collection against what it must be. Raises EmbeddingSpaceMismatch.

    One without a description is of a version that wrote none.
    """
    check_fields(found, space.dimension, layout)
    if found["description"] not in ("", space.space_id[:_LONGEST_DESCRIPTION]):
        raise EmbeddingSpaceMismatch(f"the collection {found['collection_name']} is of another space")


def check_fields(found: Mapping[str, Any], dimension: int, layout: MilvusLayout) -> None:
    """What every read relies on. Raises EmbeddingSpaceMismatch."""
    name = found["collection_name"]
    fields = {one["name"]: one["params"] for one in found["fields"]}
    if "vector" not in fields or int(fields["vector"]["dim"]) != dimension:
        raise EmbeddingSpaceMismatch(f"the collection {name} holds vectors of another dimension")
    words = "bm25" if layout.bm25 else "term_ids"
    if not {*TEXT_FIELDS, *NUMBER_FIELDS, "risk", "terms", words} <= fields.keys():
        raise EmbeddingSpaceMismatch(
            f"the collection {name} was made by something else or for another version of Milvus"
        )
