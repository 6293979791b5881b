"""Seals: the row that a server's revision gets last, which says that the revision is there and whole."""

from typing import Any

from gateway.adapters.milvus.filter import literal, revision_filter
from gateway.adapters.milvus.rows import NUMBER_FIELDS, TEXT_FIELDS
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.chunk import stable_hash

#: no class of a chunk: those start at 0
_SEAL_CLASS = -1
#: all rows of all revisions but their seals
EVERY_ROW = f"acl_class > {_SEAL_CLASS}"


def seal_row(space: EmbeddingSpace, kb_revision: str, *, bm25: bool) -> dict[str, Any]:
    """Whoever sees it sees every row written before it, as a collection has one shard.

    Its tenant, class and validity match no query. A revision without one is missing, and one with
    nothing else is empty.
    """
    seal: dict[str, Any] = dict.fromkeys((*TEXT_FIELDS, "risk", "terms"), "")
    seal |= dict.fromkeys(NUMBER_FIELDS, 0)
    seal |= {"row_id": _seal_id(kb_revision), "kb_revision": kb_revision, "acl_class": _SEAL_CLASS}
    seal["vector"] = [1.0] + [0.0] * (space.dimension - 1)
    return seal if bm25 else seal | {"term_ids": []}


def seal_filter(kb_revision: str) -> str:
    """The seal alone; its knowledge base is the empty name."""
    return f'row_id == {literal(_seal_id(kb_revision))} and kb_id == ""'


def rows_filter(kb_revision: str) -> str:
    """All rows of one revision but its seal."""
    return f"{revision_filter(kb_revision)} and {EVERY_ROW}"


def _seal_id(kb_revision: str) -> str:
    return stable_hash("seal", kb_revision)
