"""What a seal promises on a server, and words that are scored without the server's help."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import count

import anyio
import pytest
import pytest_asyncio
from pymilvus import MilvusClient

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from gateway.release.model import EmbeddingSpace
from tests.contract.vector_world import EAST, SPACE, query, row, soon
from tests.harness.milvus_server import MilvusServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ROUNDS = 8
_numbers = count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(milvus: MilvusServer) -> AsyncIterator[MilvusStore]:
    """The writing process's store."""
    one = MilvusStore(lambda: Endpoint(milvus.uri), server_layout, batch_rows=500)
    try:
        await one.prepare(SPACE)
        yield one
    finally:
        await one.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def reader(milvus: MilvusServer, store: MilvusStore) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process, connected."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.milvus_reader_child", milvus.uri),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        await _line(process)
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.fixture
def revision() -> str:
    """A revision nobody else uses."""
    return f"seals {next(_numbers)}"


@pytest.fixture
def client(milvus: MilvusServer) -> Iterator[MilvusClient]:
    """A look behind the store."""
    one = MilvusClient(milvus.uri, dedicated=True)
    yield one
    one.close()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    with anyio.fail_after(60):
        return (await process.stdout.readline()).decode()


async def test_another_process_sees_a_sealed_revision_whole_at_once(
    store: MilvusStore, reader: asyncio.subprocess.Process
) -> None:
    """Many rounds: it asks the moment ``seal`` returns, through a connection of its own."""
    assert reader.stdin is not None
    names = [f"c{i}" for i in range(30)]
    for number in range(_ROUNDS):
        revision = f"round {number}"
        await store.write(SPACE, revision, [row(name, kb_revision=revision) for name in names])
        await store.seal(SPACE, revision)
        reader.stdin.write(json.dumps([revision, names]).encode() + b"\n")
        assert json.loads(await _line(reader)) == [30, 30, 30]


async def test_rows_replaced_before_the_seal_are_what_another_process_sees(
    store: MilvusStore, reader: asyncio.subprocess.Process, revision: str
) -> None:
    """Written twice, there once: the key of the partition and that of the row are both minded."""
    assert reader.stdin is not None
    names = [f"c{i}" for i in range(30)]
    for _ in range(2):
        await store.write(SPACE, revision, [row(name, kb_revision=revision) for name in names])
    await store.seal(SPACE, revision)
    reader.stdin.write(json.dumps([revision, names]).encode() + b"\n")
    assert json.loads(await _line(reader)) == [30, 30, 30]
    assert await store.count(SPACE, revision) == 30


@pytest.mark.soak
async def test_a_large_revision_is_flushed_and_a_small_one_is_not(
    store: MilvusStore, client: MilvusClient
) -> None:
    """The server searches few unflushed rows exactly, and many through an index that misses some."""
    space = EmbeddingSpace("seals-flushed", "test", 3)
    await store.prepare(space)

    async def sealed(revision: str, rows: int) -> int:
        written = [row(f"c{i}", kb_revision=revision, embedding_space_id=space.space_id) for i in range(rows)]
        await store.write(space, revision, written)
        await store.seal(space, revision)
        assert await store.count(space, revision) == rows
        return int(client.get_collection_stats(space.collection)["row_count"])

    assert await sealed("small", 10) == 0
    assert await sealed("large", 2_500) >= 2_500
    [hit] = await store.dense(query(revision="small", space=space), EAST, 1, soon())
    assert hit.chunk.kb_revision == "small"


async def test_hidden_passages_change_no_score(store: MilvusStore, revision: str) -> None:
    """The same visible rows score the same, whatever the classes nobody may see hold."""
    visible = [
        row("both", terms=("reset", "password", "now"), kb_revision=revision),
        row("one", terms=("reset", "router", "now", "now"), kb_revision=revision),
        row("none", terms=("holiday",), kb_revision=revision),
    ]
    await store.write(SPACE, revision, visible)
    await store.seal(SPACE, revision)
    asked = query(revision=revision)
    before = await store.lexical(asked, ("reset", "password", "now"), 10, soon())
    assert [hit.chunk.chunk_id for hit in before] == ["both", "one"]
    hidden = [row(f"h{i}", terms=("password",) * 9, kb_revision=revision, acl_class=2) for i in range(50)]
    await store.write(SPACE, revision, hidden)
    await store.seal(SPACE, revision)
    assert await store.lexical(asked, ("reset", "password", "now"), 10, soon()) == before


async def test_a_rare_word_is_found_among_too_many_rows_with_a_common_one(
    store: MilvusStore, revision: str
) -> None:
    """More rows match than one question may read; the one with the rare word is among those read."""
    rows = [row(f"c{i}", terms=("common", f"own{i}"), kb_revision=revision) for i in range(1_500)]
    await store.write(SPACE, revision, rows)
    await store.seal(SPACE, revision)
    for number in (7, 700, 1_400):
        hits = await store.lexical(query(revision=revision), ("common", f"own{number}"), 5, soon())
        assert hits[0].chunk.chunk_id == f"c{number}"
        assert len(hits) == 5
    hits = await store.lexical(query(revision=revision), ("common",), 5, soon())
    assert len(hits) == 5, "a common word alone finds some of the many"


async def test_a_narrower_question_reads_its_own_rows_of_the_many(store: MilvusStore, revision: str) -> None:
    """What is read is what the caller may see: the many rows of another class push nothing out."""
    many = [row(f"c{i}", terms=("common",), kb_revision=revision, acl_class=2) for i in range(1_200)]
    mine = replace(row("mine", terms=("common",), kb_revision=revision))
    await store.write(SPACE, revision, [*many, mine])
    await store.seal(SPACE, revision)
    hits = await store.lexical(query(revision=revision), ("common",), 50, soon())
    assert [hit.chunk.chunk_id for hit in hits] == ["mine"]
