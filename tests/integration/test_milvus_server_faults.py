"""A Milvus server that is down, slow, restarted, emptied or not the one expected: a clear error each time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import count

import anyio
import pytest
import pytest_asyncio
from pymilvus import DataType, MilvusClient

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbeddingSpaceMismatch, VectorStoreUnavailable
from gateway.release.model import EmbeddingSpace
from tests.contract.vector_world import EAST, SPACE, query, row, seen, soon
from tests.harness.milvus_server import MilvusServer, milvus_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    """A server of this module's own: it is paused and killed here."""
    with milvus_server(tmp_path_factory.mktemp("milvus")) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(server: MilvusServer) -> AsyncIterator[MilvusStore]:
    """A store over it, with one revision of one row."""
    one = _store(server)
    try:
        await one.prepare(SPACE)
        await one.write(SPACE, "r1", [row()])
        await one.seal(SPACE, "r1")
        yield one
    finally:
        await one.aclose()


@pytest.fixture
def space() -> EmbeddingSpace:
    """A space nobody else uses."""
    return replace(SPACE, space_id=f"faults-{next(_numbers)}")


@pytest.fixture
def client(server: MilvusServer) -> Iterator[MilvusClient]:
    """Somebody else's way to the server."""
    one = MilvusClient(server.uri, dedicated=True)
    yield one
    one.close()


def _store(server: MilvusServer, *, may_create: bool = True, write_cap_s: float = 60.0) -> MilvusStore:
    return MilvusStore(
        lambda: Endpoint(server.uri), server_layout, may_create=may_create, write_cap_s=write_cap_s
    )


async def _fill(store: MilvusStore, space: EmbeddingSpace) -> None:
    await store.prepare(space)
    await store.write(space, "r1", [row(embedding_space_id=space.space_id)])
    await store.seal(space, "r1")


@pytest.mark.soak
async def test_the_server_says_which_version_it_is(store: MilvusStore) -> None:
    """And the layout follows from it."""
    assert (await store.server_version()).startswith("v2.3.5")
    assert store.consistency == "Bounded"


async def test_a_deadline_ends_a_call_the_server_does_not_answer(
    server: MilvusServer, store: MilvusStore
) -> None:
    """Every route gives up by its own clock, and goes on when the server does."""
    await store.dense(query(), EAST, 5, soon())
    server.pause()
    try:
        with anyio.fail_after(5):
            for read in (
                store.dense(query(), EAST, 5, Deadline.after(100)),
                store.lexical(query(), ("common",), 5, Deadline.after(100)),
                store.fetch(query(), ["one"], Deadline.after(100)),
                store.ping(Deadline.after(100)),
            ):
                with pytest.raises(DeadlineExceeded) as raised:
                    await read
                assert raised.value.stage == "retrieval"
    finally:
        server.resume()
    assert await seen(store, query(), ["one"]) == [{"one"}] * 3


async def test_a_cancelled_search_returns_at_once_and_leaves_the_store_usable(
    server: MilvusServer, store: MilvusStore
) -> None:
    """The server is held up, so the calls are in flight when their tasks are cancelled."""
    await store.dense(query(), EAST, 5, soon())
    server.pause()
    try:
        calls = [
            asyncio.create_task(call)
            for _ in range(10)
            for call in (
                store.dense(query(), EAST, 5, soon()),
                store.lexical(query(), ("common",), 5, soon()),
            )
        ]
        await anyio.wait_all_tasks_blocked()
        for call in calls:
            call.cancel()
        with anyio.fail_after(2):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    finally:
        server.resume()
    assert await seen(store, query(), ["one"]) == [{"one"}] * 3


@pytest.mark.soak
async def test_a_write_the_server_does_not_answer_ends_too(server: MilvusServer, store: MilvusStore) -> None:
    """By its own cap; what was being written is an error, and the next write finds its way."""
    hasty = _store(server, write_cap_s=1.0)
    await hasty.ping(soon())
    server.pause()
    try:
        with anyio.fail_after(20):
            for call in (
                hasty.write(SPACE, "r2", [row(kb_revision="r2")]),
                hasty.count(SPACE, "r2"),
                hasty.drop(SPACE, "r2"),
                hasty.prepare(SPACE),
            ):
                with pytest.raises(VectorStoreUnavailable):
                    await call
    finally:
        server.resume()
        await hasty.aclose()
    await store.write(SPACE, "r2", [row(kb_revision="r2")])
    await store.seal(SPACE, "r2")
    assert await store.count(SPACE, "r2") == 1


async def test_a_missing_collection_is_not_made_by_a_runtime_account(
    server: MilvusServer, space: EmbeddingSpace
) -> None:
    """The error says which command makes it; reading it is an error too."""
    runtime = _store(server, may_create=False)
    try:
        with pytest.raises(VectorStoreUnavailable, match="qa-gateway migrate"):
            await runtime.prepare(space)
        with pytest.raises(VectorStoreUnavailable):
            await runtime.dense(query(space=space), EAST, 1, soon())
        with pytest.raises(VectorStoreUnavailable):
            await runtime.count(space, "r1")
    finally:
        await runtime.aclose()


@pytest.mark.soak
async def test_a_missing_index_is_not_made_by_a_runtime_account(
    server: MilvusServer, store: MilvusStore, space: EmbeddingSpace, client: MilvusClient
) -> None:
    """A preparation that was interrupted is finished by ``migrate``, and then it will do."""
    await store.prepare(space)
    client.release_collection(space.collection)
    client.drop_index(space.collection, "vector")
    runtime = _store(server, may_create=False)
    try:
        with pytest.raises(VectorStoreUnavailable, match="qa-gateway migrate"):
            await runtime.prepare(space)
        await store.prepare(space)
        assert await runtime.prepare(space) == space.collection
    finally:
        await runtime.aclose()


@pytest.mark.soak
async def test_a_collection_dropped_under_us_is_an_error(
    store: MilvusStore, space: EmbeddingSpace, client: MilvusClient
) -> None:
    """It was read a moment ago: nothing is found in its place, and nothing there is no answer."""
    await _fill(store, space)
    assert await seen(store, query(space=space), ["one"]) == [{"one"}] * 3
    client.drop_collection(space.collection)
    for read in (
        store.dense(query(space=space), EAST, 1, soon()),
        store.lexical(query(space=space), ("common",), 1, soon()),
        store.fetch(query(space=space), ["one"], soon()),
    ):
        with pytest.raises(VectorStoreUnavailable):
            await read


@pytest.mark.soak
async def test_a_revision_dropped_by_another_process_is_an_error(
    server: MilvusServer, store: MilvusStore, space: EmbeddingSpace
) -> None:
    """A reader that has seen it looks again before it says that nothing was found."""
    await _fill(store, space)
    other = _store(server)
    try:
        assert await seen(other, query(space=space), ["one"]) == [{"one"}] * 3
        await store.drop(space, "r1")
        assert await store.count(space, "r1") == 0
        with pytest.raises(VectorStoreUnavailable):
            await other.dense(query(space=space), EAST, 1, soon())
    finally:
        await other.aclose()


@pytest.mark.soak
async def test_a_collection_of_another_dimension_is_another_space(
    store: MilvusStore, space: EmbeddingSpace
) -> None:
    """For the writer, and for a reader whose release names it."""
    await _fill(store, space)
    wide = replace(space, dimension=4)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.prepare(wide)
    asked = query(revision="r9", space=wide, collection=space.collection)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.dense(asked, (1.0, 0.0, 0.0, 0.0), 1, soon())


async def test_a_collection_of_another_space_with_the_same_dimension_is_refused(
    store: MilvusStore, space: EmbeddingSpace, client: MilvusClient
) -> None:
    """A name is no proof: the collection says whose it is."""
    await store.prepare(replace(space, space_id=f"{space.space_id}-other"))
    client.rename_collection(f"{space.collection}_other", space.collection)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.prepare(space)


@pytest.mark.soak
async def test_somebody_elses_collection_is_refused(
    store: MilvusStore, space: EmbeddingSpace, client: MilvusClient
) -> None:
    """It has the name and the dimension, and none of the fields a filter needs."""
    schema = MilvusClient.create_schema()
    schema.add_field("row_id", DataType.VARCHAR, max_length=64, is_primary=True)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=3)
    client.create_collection(space.collection, schema=schema)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.prepare(space)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.dense(query(space=space), EAST, 1, soon())


async def test_two_spaces_of_one_dimension_do_not_mix(store: MilvusStore, space: EmbeddingSpace) -> None:
    """The same ids in both: each query finds its own space's row."""
    other = replace(space, space_id=f"{space.space_id}-other")
    for one, content in ((space, "mine"), (other, "theirs")):
        await store.prepare(one)
        await store.write(one, "r1", [row(embedding_space_id=one.space_id, content=content)])
        await store.seal(one, "r1")
    for one, content in ((space, "mine"), (other, "theirs")):
        [hit] = await store.dense(query(space=one), EAST, 5, soon())
        assert hit.chunk.content == content


@pytest.mark.soak
async def test_a_server_that_was_killed_is_found_again(server: MilvusServer, store: MilvusStore) -> None:
    """While it is down every call is an error at once; back on its address, the store goes on by itself.

    What was sealed is whole. The same for a store that never met the server before.
    """
    assert await seen(store, query(), ["one"]) == [{"one"}] * 3
    server.stop()
    newcomer = _store(server)
    try:
        with anyio.fail_after(20):
            for read in (
                store.dense(query(), EAST, 5, soon()),
                store.lexical(query(), ("common",), 5, soon()),
                store.fetch(query(), ["one"], soon()),
                store.ping(soon()),
                store.count(SPACE, "r1"),
                store.write(SPACE, "r3", [row(kb_revision="r3")]),
                newcomer.ping(soon()),
                newcomer.prepare(SPACE),
            ):
                with pytest.raises(VectorStoreUnavailable):
                    await read
        server.start()  # not in a thread: the server ends with the one that started it
        for one in (store, newcomer):
            await _until_found(one)
            assert await seen(one, query(), ["one"]) == [{"one"}] * 3
        assert await store.count(SPACE, "r1") == 1
    finally:
        await newcomer.aclose()


async def _until_found(store: MilvusStore) -> None:
    """The server loads its collections after it has begun to answer."""
    with anyio.fail_after(90):
        while True:
            try:
                await store.dense(query(), EAST, 5, soon())
            except (VectorStoreUnavailable, DeadlineExceeded):
                await anyio.sleep(0.1)  # there is no event to wait for
            else:
                return
