"""Accounts of a Milvus server with authorization: what each may do, and what a runtime account needs."""

import pytest

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from gateway.errors import VectorStoreUnavailable
from tests.contract.vector_world import SPACE, fill, query, row, seen, soon
from tests.harness.milvus_server import MilvusServer

_ROOT = "root:Milvus"


def _store(server: MilvusServer, token: str, *, may_create: bool = True) -> MilvusStore:
    return MilvusStore(lambda: Endpoint(server.uri, token), server_layout, may_create=may_create)


async def test_a_runtime_account_reads_and_writes_and_has_no_more(guarded_milvus: MilvusServer) -> None:
    """What ``migrate`` grants is enough for an import and a question, and is reported as fit."""
    root = _store(guarded_milvus, _ROOT)
    runtime = _store(guarded_milvus, "clerk:a-password", may_create=False)
    try:
        await root.prepare(SPACE)
        for _ in range(2):  # migrate may run again
            await root.grant_runtime("clerk", "a-password")
        assert await runtime.privileges() == []
        assert await runtime.prepare(SPACE) == SPACE.collection
        await fill(runtime, "r1", row())
        assert await seen(runtime, query(), ["one"]) == [{"one"}] * 3
        assert await runtime.count(SPACE, "r1") == 1
        await runtime.drop(SPACE, "r1")
        assert await runtime.count(SPACE, "r1") == 0
    finally:
        await runtime.aclose()
        await root.aclose()


async def test_a_runtime_account_can_flush_what_is_large(guarded_milvus: MilvusServer) -> None:
    """A large import needs no more rights than a small one."""
    root = _store(guarded_milvus, _ROOT)
    runtime = _store(guarded_milvus, "clerk:a-password", may_create=False)
    try:
        await root.prepare(SPACE)
        await root.grant_runtime("clerk", "a-password")
        await fill(runtime, "r2", *(row(f"c{i}", kb_revision="r2") for i in range(2_100)))
        assert await runtime.count(SPACE, "r2") == 2_100
    finally:
        await runtime.aclose()
        await root.aclose()


async def test_an_account_that_may_change_the_schema_is_named_unfit(guarded_milvus: MilvusServer) -> None:
    """Each excess by name; nothing is changed by asking."""
    root = _store(guarded_milvus, _ROOT)
    try:
        await root.prepare(SPACE)
        excess = await root.privileges()
        assert {"drop a collection", "create an index", "alter a collection"} <= set(excess)
        assert await root.prepare(SPACE) == SPACE.collection
    finally:
        await root.aclose()


async def test_a_server_without_authorization_is_reported_as_such(milvus: MilvusServer) -> None:
    """There, no account is fit."""
    store = _store(milvus, "")
    try:
        [finding] = await store.privileges()
        assert "no authorization" in finding
    finally:
        await store.aclose()


@pytest.mark.parametrize("token", ["", "root:wrong", "nobody:nothing"])
async def test_a_wrong_password_is_an_unavailable_store(guarded_milvus: MilvusServer, token: str) -> None:
    """Nothing is said about whether the name exists."""
    store = _store(guarded_milvus, token)
    try:
        with pytest.raises(VectorStoreUnavailable):
            await store.ping(soon())
    finally:
        await store.aclose()
