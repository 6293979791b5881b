"""What the vector store's tests are made of: one small space, chunks, queries and hostile names."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol

from gateway.access.scope import AccessScope
from gateway.context import Deadline
from gateway.release.model import EmbeddingSpace, RetrievalConfig, RetrievalRelease
from gateway.retrieval.chunk import FOREVER, Chunk, row_id
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import ChunkReader, ChunkWriter, Row

SPACE = EmbeddingSpace("contract/3", "test", 3)
NOW = 1_000
EAST = (1.0, 0.0, 0.0)

#: names as attackers and the unlucky choose them; each must match itself and nothing else
HOSTILE = {
    "injection": '") or true or ("',
    "parenthesis": 'x") or (row_id != "',
    "single quotes": "' or '1'=='1",
    "trailing backslash": "a\\",
    "backslash quote": 'a\\"b',
    "escape look-alike": "a\\nb",
    "quote": 'a"b',
    "newline": "a\nb",
    "carriage return": "a\rb",
    "tab": "a\tb",
    "line separator": "a\u2028b\x0b\x85",
    "percent and underscore": "a%_b",
    "brackets": "a[b]{c}",
    "emoji": "🦊👩‍👩‍👧",
    "chinese": "知识库",
    "decomposed": "e\u0301",
    "composed": "\u00e9",
    "ten kilobytes": "k" * 10_240,
    "ten kilobytes of quotes": '"' * 10_240,
}
REFUSED = {"nul": "a\0b", "lone surrogate": "a\ud800b"}


class Store(ChunkReader, ChunkWriter, Protocol):
    """Both ports at once, as the implementations are."""


def soon() -> Deadline:
    """Time enough for anything that works."""
    return Deadline.after(20_000)


def chunk(name: str = "one", **changes: Any) -> Chunk:
    """A chunk of tenant t, knowledge base k, class 1, valid for ever; ids follow from the changes."""
    fields: dict[str, Any] = {
        "chunk_id": name,
        "tenant_id": "t",
        "kb_id": "k",
        "kb_revision": "r1",
        "embedding_space_id": SPACE.space_id,
        "document_id": f"document of {name[:40]}",
        "document_version": 2,
        "chunk_index": 3,
        "acl_class": 1,
        "category": "",
        "valid_from": 0,
        "valid_until": FOREVER,
        "sensitivity": 1,
        "revocation_epoch": 7,
        "title": "Title",
        "section": "Chapter > Part",
        "page": 4,
        "source_uri": "docs/one.md",
        "parser_version": "md/1",
        "splitter_version": "s/1",
        "content_hash": "abc",
        "author": "",
        "approval": "approved",
        "risk": ("stale", "external"),
        "content": f'raw "text"\n\twith \\ of {name[:40]} 知识',
    } | changes
    return Chunk(row_id=row_id(fields["kb_revision"], fields["chunk_id"]), **fields)


def row(
    name: str = "one",
    vector: tuple[float, ...] = EAST,
    terms: tuple[str, ...] = ("common",),
    **changes: Any,
) -> Row:
    """A row as it is written."""
    return Row(chunk(name, **changes), vector, terms)


def query(
    tenant: str = "t",
    kb: str = "k",
    revision: str = "r1",
    classes: Iterable[int] = (1,),
    at: int = NOW,
    category: str | None = None,
    space: EmbeddingSpace = SPACE,
    collection: str | None = None,
) -> ScopedQuery:
    """A query that sees ``chunk()``; its space's collection, unless another is named."""
    release = RetrievalRelease(
        release_id="release",
        tenant=tenant,
        kb_id=kb,
        knowledge_base="name",
        kb_revision=revision,
        sequence=1,
        space=space,
        collection=collection or space.collection,
        config=RetrievalConfig("1", 1.0, 1.0, 1.0),
    )
    scope = AccessScope(tenant, kb, "name", 1, 1, "first", frozenset({"public"}), frozenset(classes))
    return ScopedQuery(scope, release, at, category)


def without_classes(one: ScopedQuery) -> ScopedQuery:
    """A query that can't exist: its scope lost every class behind the constructor's back."""
    scope = replace(one.scope)
    object.__setattr__(scope, "permitted_classes", frozenset())
    return replace(one, scope=scope)


async def fill(store: Store, revision: str, *rows: Row) -> None:
    """Writes and seals one revision."""
    await store.write(SPACE, revision, rows)
    await store.seal(SPACE, revision)


async def seen(store: Store, asked: ScopedQuery, chunk_ids: Iterable[str]) -> list[set[str]]:
    """The chunk ids that each of the three ways to read finds."""
    dense = await store.dense(asked, EAST, 1000, soon())
    lexical = await store.lexical(asked, ("common",), 1000, soon())
    fetched = await store.fetch(asked, list(chunk_ids), soon())
    return [
        {hit.chunk.chunk_id for hit in dense},
        {hit.chunk.chunk_id for hit in lexical},
        {one.chunk_id for one in fetched},
    ]
