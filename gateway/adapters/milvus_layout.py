"""Layouts: how Lite and a server store a space's chunks, and the one place that makes collections."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymilvus import CollectionSchema, DataType, Function, FunctionType, MilvusClient

from gateway.adapters.milvus_rows import MAX_TEXT_BYTES, NUMBER_FIELDS, TEXT_FIELDS
from gateway.errors import EmbeddingSpaceMismatch
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import stable_hash

#: as Lucene and Milvus servers have them; Lite's own default for k1 is 1.5
BM25_K1 = 1.2
BM25_B = 0.75


@dataclass(frozen=True, slots=True)
class MilvusLayout:
    """How a deployment stores and searches; ``lexical_sign`` makes its BM25 scores positive."""

    dense_index: str
    dense_build: Mapping[str, Any] = field(default_factory=dict)
    dense_search: Mapping[str, Any] = field(default_factory=dict)
    partition_per_revision: bool = False
    lexical_sign: float = 1.0
    consistency: str | None = None


#: only FLAT is exact under a filter on Lite
LITE = MilvusLayout(dense_index="FLAT", partition_per_revision=True, lexical_sign=-1.0)
SERVER = MilvusLayout(
    dense_index="HNSW",
    dense_build={"M": 16, "efConstruction": 200},
    dense_search={"ef": 128},
    consistency="Bounded",
)


def partition_of(kb_revision: str) -> str:
    """A revision's partition name: letters, digits and an underscore, whatever the revision is called."""
    return f"r_{stable_hash(kb_revision)}"


def collection_schema(space: EmbeddingSpace, *, kb_partition_key: bool) -> CollectionSchema:
    """One collection's fields: no dynamic ones, so that a misspelt field is an error and no empty result."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    for name in TEXT_FIELDS:
        schema.add_field(
            name,
            DataType.VARCHAR,
            max_length=64 if name == "row_id" else MAX_TEXT_BYTES,
            is_primary=name == "row_id",
            is_partition_key=kb_partition_key and name == "kb_id",
        )
    for name in NUMBER_FIELDS:
        schema.add_field(name, DataType.INT64)
    schema.add_field("risk", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field(
        "terms",
        DataType.VARCHAR,
        max_length=MAX_TEXT_BYTES,
        enable_analyzer=True,
        analyzer_params={"tokenizer": "standard"},
    )
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=space.dimension)
    schema.add_field("bm25", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(
        Function(
            name="terms_bm25",
            function_type=FunctionType.BM25,
            input_field_names=["terms"],
            output_field_names=["bm25"],
        )
    )
    return schema


def make_collection(client: MilvusClient, space: EmbeddingSpace, layout: MilvusLayout, cap_s: float) -> None:
    """The space's collection with its indexes, loaded. Raises EmbeddingSpaceMismatch, MilvusException."""
    # Step by step, so that one that was interrupted is finished by the next.
    name = space.collection
    if not client.has_collection(name, timeout=cap_s):
        schema = collection_schema(space, kb_partition_key=not layout.partition_per_revision)
        client.create_collection(name, schema=schema, timeout=cap_s)
    fields = client.describe_collection(name, timeout=cap_s)["fields"]
    dimensions = [f["params"].get("dim") for f in fields if f["name"] == "vector"]
    if dimensions != [space.dimension]:
        raise EmbeddingSpaceMismatch(f"the collection {name} holds vectors of another space")
    present = set(client.list_indexes(name))
    for anns_field, index in (("vector", layout.dense_index), ("bm25", "SPARSE_INVERTED_INDEX")):
        if anns_field in present:
            continue
        dense = anns_field == "vector"
        params = client.prepare_index_params()
        params.add_index(
            field_name=anns_field,
            index_name=anns_field,
            index_type=index,
            metric_type="COSINE" if dense else "BM25",
            params=dict(layout.dense_build) if dense else {"bm25_k1": BM25_K1, "bm25_b": BM25_B},
        )
        client.create_index(name, params, timeout=cap_s)
    client.load_collection(name, timeout=cap_s)
