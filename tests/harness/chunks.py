"""A whole chunk for tests that care about a few of its fields."""

from typing import Any

from gateway.retrieval.chunk import FOREVER, Chunk, row_id


def sample_chunk(content: str, name: str = "c1", **changes: Any) -> Chunk:
    """Chunk ``name`` of revision r1, tenant acme, class 1, valid for ever; ``changes`` by field."""
    fields: dict[str, Any] = {
        "row_id": row_id("r1", name),
        "chunk_id": name,
        "tenant_id": "acme",
        "kb_id": "kb",
        "kb_revision": "r1",
        "embedding_space_id": "space",
        "document_id": "d1",
        "document_version": 1,
        "chunk_index": 0,
        "acl_class": 1,
        "category": "",
        "valid_from": 0,
        "valid_until": FOREVER,
        "sensitivity": 0,
        "revocation_epoch": 0,
        "title": "Handbook",
        "section": "",
        "page": 0,
        "source_uri": "handbook.md",
        "parser_version": "p1",
        "splitter_version": "s1",
        "content_hash": "h",
        "author": "",
        "approval": "unreviewed",
        "risk": (),
        "content": content,
    }
    return Chunk(**{**fields, **changes})
