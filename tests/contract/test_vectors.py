"""The vector store's contract, over the in-memory twin, a real Milvus Lite child and a real server."""

import asyncio
import functools
import math
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.adapters.langchain.reader import LangChainReader
from gateway.adapters.langchain.vectors import installed, load
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import LITE, collection_schema, server_layout
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.context import Deadline
from gateway.errors import (
    DeadlineExceeded,
    EmbeddingSpaceMismatch,
    InvalidField,
    InvariantViolated,
    UnscopedAccess,
    VectorStoreUnavailable,
)
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.modes import DenseReader
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Row
from tests.contract.vector_world import (
    EAST,
    HOSTILE,
    NOW,
    REFUSED,
    SPACE,
    Store,
    chunk,
    fill,
    query,
    row,
    seen,
    soon,
    without_classes,
)
from tests.harness.milvus_server import MilvusServer
from tests.harness.missing import part_missing

pytestmark = pytest.mark.asyncio(loop_scope="session")

_numbers = count()
_WORDS = ("reset", "password", "router", "holiday", "calendar", "rare", "invoice")
#: a collection of its own, in which nobody else writes
WIDE = EmbeddingSpace("contract/wide", "test", 3)


async def until_seen(store: Store, asked: ScopedQuery, names: list[str], expected: set[str]) -> None:
    """By all three routes, as soon as a reader that is a little behind its writes has caught up."""
    with anyio.fail_after(10):
        while await seen(store, asked, names) != [expected] * 3:
            await anyio.lowlevel.checkpoint()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MilvusStore]:
    """One child for all tests of this module."""
    child = LiteChild(tmp_path_factory.mktemp("vectors"))
    await child.start()
    # batches of two, so that a write of several rows is several calls
    store = MilvusStore(child.endpoint, batch_rows=2, listed_rows=4)
    try:
        await store.prepare(SPACE)
        yield store
    finally:
        await store.aclose()
        await child.aclose()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def memory() -> MemoryVectors:
    """The twin."""
    store = MemoryVectors()
    await store.prepare(SPACE)
    return store


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real(milvus: MilvusServer) -> AsyncIterator[MilvusStore]:
    """A server's store, as a deployment has it."""
    store = MilvusStore(lambda: Endpoint(milvus.uri), server_layout, batch_rows=2, listed_rows=4)
    try:
        await store.prepare(SPACE)
        yield store
    finally:
        await store.aclose()


@pytest.fixture(params=["memory", "embedded", "real"])
def store(request: pytest.FixtureRequest) -> Any:
    """Each test runs over all."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def revision() -> str:
    """A revision nobody else uses."""
    return f"revision {next(_numbers)}"


async def test_a_hit_carries_the_whole_chunk_as_it_was_written(store: Store, revision: str) -> None:
    """Every field comes back, content and risk markers included."""
    written = row(kb_revision=revision, author="Ann", category="faq")
    await fill(store, revision, written)
    asked = query(revision=revision)
    [near] = await store.dense(asked, EAST, 5, soon())
    [worded] = await store.lexical(asked, ("common",), 5, soon())
    [fetched] = await store.fetch(asked, ["one"], soon())
    assert near.chunk == worded.chunk == fetched == written.chunk


async def test_a_chunk_without_risk_markers_comes_back_without_any(store: Store, revision: str) -> None:
    """No marker is no marker, and not one empty marker."""
    await fill(store, revision, row(kb_revision=revision, risk=()))
    [fetched] = await store.fetch(query(revision=revision), ["one"], soon())
    assert fetched.risk == ()


async def test_dense_scores_are_cosines_and_the_nearest_is_first(store: Store, revision: str) -> None:
    """Equal directions score 1, orthogonal ones 0, opposite ones -1; length means nothing."""
    await fill(
        store,
        revision,
        row("opposite", (-1.0, 0.0, 0.0), kb_revision=revision),
        row("orthogonal", (0.0, 1.0, 0.0), kb_revision=revision),
        row("same", (5.0, 0.0, 0.0), kb_revision=revision),
        row("between", (1.0, 1.0, 0.0), kb_revision=revision),
    )
    hits = await store.dense(query(revision=revision), EAST, 10, soon())
    assert [hit.chunk.chunk_id for hit in hits] == ["same", "between", "orthogonal", "opposite"]
    assert [hit.score for hit in hits] == pytest.approx([1, math.sqrt(0.5), 0, -1], abs=1e-6)
    assert all(-1 <= hit.score <= 1 for hit in hits)
    assert len(await store.dense(query(revision=revision), EAST, 2, soon())) == 2
    assert await store.dense(query(revision=revision), EAST, 0, soon()) == []


async def test_lexical_scores_are_positive_and_the_best_is_first(store: Store, revision: str) -> None:
    """More and rarer asked terms rank higher; passages without any are no hits."""
    await fill(
        store,
        revision,
        row("both", terms=("reset", "password", "now"), kb_revision=revision),
        row("one", terms=("reset", "router", "now"), kb_revision=revision),
        row("none", terms=("holiday", "calendar", "now"), kb_revision=revision),
    )
    hits = await store.lexical(query(revision=revision), ("reset", "password"), 10, soon())
    assert [hit.chunk.chunk_id for hit in hits] == ["both", "one"]
    assert all(hit.score > 0 for hit in hits)


async def test_no_terms_find_nothing(store: Store, revision: str) -> None:
    """An empty question has no lexical hits, on a filled revision too."""
    await fill(store, revision, row(kb_revision=revision))
    assert await store.lexical(query(revision=revision), (), 10, soon()) == []
    assert await store.lexical(query(revision=revision), ("absent",), 10, soon()) == []


@pytest.mark.parametrize(
    ("term", "other"),
    [
        ("err_timeout", "timeout"),
        ("v1.2.3", "2"),
        ("payment-service", "service"),
        ("知识", "识库"),
        ("é", "e"),
        ("xe79fa5", "知"),
        ("x" * 500, "x" * 501),
    ],
)
async def test_a_term_is_matched_whole(store: Store, revision: str, term: str, other: str) -> None:
    """The store's analyzer neither splits a term nor mistakes one for another."""
    await fill(
        store,
        revision,
        row("this", terms=(term,), kb_revision=revision),
        row("that", terms=(other,), kb_revision=revision),
    )
    hits = await store.lexical(query(revision=revision), (term,), 10, soon())
    assert [hit.chunk.chunk_id for hit in hits] == ["this"]


@pytest.mark.parametrize(
    "changed",
    [
        {"tenant": "other"},
        {"kb": "other"},
        {"classes": (2, 3)},
        {"at": 499},
        {"at": 1500},
        {"category": "manual"},
        {"category": ""},
        {"space": replace(SPACE, space_id="contract_3"), "collection": SPACE.collection},
    ],
    ids=["tenant", "kb", "class", "too early", "at the end", "category", "empty category", "space"],
)
async def test_each_clause_alone_hides_a_row(store: Store, revision: str, changed: dict[str, Any]) -> None:
    """The unchanged query sees the row by all three routes; one changed clause hides it from all."""
    await fill(
        store,
        revision,
        row(kb_revision=revision, category="faq", valid_from=500, valid_until=1500),
    )
    assert query(**changed).release.collection == SPACE.collection
    for visible in ({}, {"category": "faq"}, {"at": 500}, {"at": 1499}, {"classes": (1, 9)}):
        asked = query(revision=revision, **visible)
        assert await seen(store, asked, ["one"]) == [{"one"}] * 3
    assert await seen(store, query(revision=revision, **changed), ["one"]) == [set()] * 3


async def test_revisions_of_one_collection_do_not_see_each_other(store: Store, revision: str) -> None:
    """The same chunk in two revisions is two rows, and each query sees its own."""
    second = revision + " second"
    await fill(store, revision, row(kb_revision=revision, content="old"))
    await fill(store, second, row(kb_revision=second, content="new"), row("more", kb_revision=second))
    [old] = await store.fetch(query(revision=revision), ["one", "more"], soon())
    assert old.content == "old"
    assert await seen(store, query(revision=revision), ["one", "more"]) == [{"one"}] * 3
    assert await seen(store, query(revision=second), ["one", "more"]) == [{"one", "more"}] * 3


async def test_dropping_a_revision_leaves_the_others(store: Store, revision: str) -> None:
    """Dropped rows are gone, the neighbour's stay, and reading what is gone is an error."""
    second = revision + " second"
    await fill(store, revision, row(kb_revision=revision))
    await fill(store, second, row(kb_revision=second))
    assert await seen(store, query(revision=second), ["one"]) == [{"one"}] * 3
    await store.drop(SPACE, second)
    await store.drop(SPACE, second)
    assert await seen(store, query(revision=revision), ["one"]) == [{"one"}] * 3
    assert (await store.count(SPACE, revision), await store.count(SPACE, second)) == (1, 0)
    with pytest.raises(VectorStoreUnavailable):
        await store.dense(query(revision=second), EAST, 1, soon())


async def test_deleting_a_document_leaves_everything_else(store: Store, revision: str) -> None:
    """Its rows go, in any number; other documents, revisions, tenants and bases keep theirs."""
    second = revision + " second"
    mine: dict[str, Any] = {"document_id": "doomed", "kb_revision": revision}
    await fill(
        store,
        revision,
        *(row(f"doomed {n}", **mine) for n in range(5)),
        row("other document", kb_revision=revision),
        row("other tenant", **mine, tenant_id="t2"),
        row("other base", **mine, kb_id="k2"),
    )
    await fill(store, second, row("doomed 0", document_id="doomed", kb_revision=second))
    names = [f"doomed {n}" for n in range(5)] + ["other document"]
    assert await seen(store, query(revision=revision), names) == [set(names)] * 3
    assert await store.delete_document(SPACE, revision, "t", "k", "doomed") == 5
    assert await store.count(SPACE, revision) == 3
    await until_seen(store, query(revision=revision), names, {"other document"})
    assert (
        await seen(store, query(tenant="t2", revision=revision), ["other tenant"]) == [{"other tenant"}] * 3
    )
    assert await seen(store, query(kb="k2", revision=revision), ["other base"]) == [{"other base"}] * 3
    assert await seen(store, query(revision=second), ["doomed 0"]) == [{"doomed 0"}] * 3
    assert await store.delete_document(SPACE, revision, "t", "k", "doomed") == 0


async def test_a_revision_without_its_last_document_is_empty_and_not_missing(
    store: Store, revision: str
) -> None:
    """Whoever still reads it finds nothing; what never was has nothing to delete."""
    await fill(store, revision, row(kb_revision=revision, document_id="last"))
    assert await store.delete_document(SPACE, revision, "t", "k", "last") == 1
    await until_seen(store, query(revision=revision), ["one"], set())
    assert await store.delete_document(SPACE, "never was", "t", "k", "last") == 0
    assert await store.delete_document(EmbeddingSpace("never/made", "test", 3), "r", "t", "k", "d") == 0


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
async def test_deleting_a_document_of_a_hostile_name_deletes_it_alone(
    store: Store, revision: str, name: str
) -> None:
    """The name is matched literally in all four places."""
    revision += name
    own = row("own", kb_revision=revision, tenant_id=name, kb_id=name, document_id=name)
    await fill(store, revision, own, row("victim", kb_revision=revision))
    assert await store.delete_document(SPACE, revision, name, name, name) == 1
    assert await store.count(SPACE, revision) == 1


@pytest.mark.soak
async def test_a_store_lists_its_revisions(store: Store, revision: str) -> None:
    """Each with its rows, whoever made it; one that was dropped or lost its last row isn't listed."""
    names = [f"{revision} {name}" for name in ("kept", "dropped", "emptied", 'odd "name\\')]
    for number, name in enumerate(names, start=1):
        await fill(store, name, *(row(f"c{n}", kb_revision=name, document_id="d") for n in range(number)))
    await store.drop(SPACE, names[1])
    await store.delete_document(SPACE, names[2], "t", "k", "d")
    listed = {name: rows for name, rows in (await store.revisions(SPACE)).items() if name in names}
    assert listed == {names[0]: 1, names[3]: 4}
    assert await store.revisions(EmbeddingSpace("never/made", "test", 3)) == {}


@pytest.mark.soak
async def test_a_listing_goes_past_one_page_of_rows(store: Store, revision: str) -> None:
    """A collection is read in bounded parts, here of four rows."""
    await store.prepare(WIDE)
    one, other = f"{revision} wide", f"{revision} narrow"
    many = [row(f"c{n}", kb_revision=one, embedding_space_id=WIDE.space_id) for n in range(30)]
    await store.write(WIDE, one, many)
    await store.write(WIDE, other, [row(kb_revision=other, embedding_space_id=WIDE.space_id)])
    for name in (one, other):
        await store.seal(WIDE, name)
    assert await store.revisions(WIDE) == {one: 30, other: 1}


async def test_a_missing_revision_is_an_error_and_an_empty_one_is_not(store: Store, revision: str) -> None:
    """Nothing found and nothing there are told apart, by every route."""
    asked = query(revision=revision)
    for read in (
        store.dense(asked, EAST, 1, soon()),
        store.lexical(asked, ("common",), 1, soon()),
        store.fetch(asked, ["one"], soon()),
    ):
        with pytest.raises(VectorStoreUnavailable):
            await read
    assert await store.count(SPACE, revision) == 0
    await store.seal(SPACE, revision)
    assert await seen(store, asked, ["one"]) == [set()] * 3


async def test_a_missing_collection_is_an_error(store: Store) -> None:
    """A release whose collection is gone can't be answered from."""
    nowhere = EmbeddingSpace("never/made", "test", 3)
    with pytest.raises(VectorStoreUnavailable):
        await store.dense(query(space=nowhere), EAST, 1, soon())


async def test_a_row_written_under_another_class_is_one_row_of_that_class(
    store: Store, revision: str
) -> None:
    """As the class mover does it, after the revision was sealed; its readers are never told it is missing."""
    await fill(store, revision, row("one", kb_revision=revision), row("two", kb_revision=revision))
    old, new = (query(revision=revision, classes=classes) for classes in ((1,), (2,)))
    done = anyio.Event()

    async def read() -> None:
        while not done.is_set():
            await seen(store, old, ["one"])
            await seen(store, new, ["one"])
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as readers:
        readers.start_soon(read)
        for acl_class in (2, 1, 2):
            await fill(store, revision, row("one", kb_revision=revision, acl_class=acl_class))
        done.set()
    assert await store.count(SPACE, revision) == 2
    await until_seen(store, new, ["one", "two"], {"one"})
    await until_seen(store, old, ["one", "two"], {"two"})


async def test_writing_again_replaces_rows(store: Store, revision: str) -> None:
    """A replay makes no duplicates, before and after the first seal, and takes the newest text."""
    rows = [row(f"c{i}", kb_revision=revision, content="first") for i in range(5)]
    await store.write(SPACE, revision, rows)
    await fill(store, revision, *rows)
    await fill(store, revision, *(Row(replace(r.chunk, content="second"), EAST, ("common",)) for r in rows))
    assert await store.count(SPACE, revision) == 5
    hits = await store.dense(query(revision=revision), EAST, 100, soon())
    assert sorted(hit.chunk.chunk_id for hit in hits) == [f"c{i}" for i in range(5)]
    assert {hit.chunk.content for hit in hits} == {"second"}


@pytest.mark.parametrize(
    "stray",
    [
        row("stray", kb_revision="elsewhere"),
        row("stray", embedding_space_id="contract_3"),
        row("stray", (1.0, 0.0)),
        row("stray", (1.0, 0.0, math.nan)),
    ],
    ids=["revision", "space", "dimension", "not a number"],
)
async def test_a_write_with_one_stray_row_writes_nothing(store: Store, revision: str, stray: Row) -> None:
    """The last of six rows is wrong: none is written, here or where the stray one belongs."""
    await fill(store, revision, row(kb_revision=revision))
    if stray.chunk.kb_revision == "r1":
        stray = replace(stray, chunk=replace(chunk("stray", kb_revision=revision)))
        if len(stray.vector) == 3 and math.isfinite(sum(stray.vector)):
            stray = row("stray", kb_revision=revision, embedding_space_id="contract_3")
    rows = [row(f"c{i}", kb_revision=revision) for i in range(5)]
    with pytest.raises(InvariantViolated):
        await store.write(SPACE, revision, [*rows, stray])
    await store.seal(SPACE, revision)
    assert await store.count(SPACE, revision) == 1
    assert await store.count(SPACE, "elsewhere") == 0


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
async def test_hostile_names_match_literally(store: Store, revision: str, name: str) -> None:
    """As tenant, knowledge base, revision, category and chunk id: itself is found, nothing else is."""
    revision += name
    victim = row("victim", kb_revision=revision)
    own = row(name, kb_revision=revision, tenant_id=name, kb_id=name, category=name)
    same_tenant = row("same tenant", kb_revision=revision, tenant_id=name)
    await fill(store, revision, victim, own, same_tenant)
    names = [name, "victim", "same tenant"]
    asked = query(tenant=name, kb=name, revision=revision)
    assert await seen(store, asked, names) == [{name}] * 3
    assert await seen(store, replace(asked, category=name), names) == [{name}] * 3
    assert await seen(store, query(revision=revision, category=name), names) == [set()] * 3
    assert await seen(store, query(tenant=name, revision=revision), names) == [{"same tenant"}] * 3
    assert await seen(store, query(revision=revision), names) == [{"victim"}] * 3


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("place", ["tenant", "kb", "revision", "category"])
async def test_names_no_filter_can_match_are_refused(store: Store, place: str, name: str) -> None:
    """NUL and lone surrogates never reach a store."""
    asked = query(**{place: name})  # type: ignore[arg-type]  # a keyword by name
    with pytest.raises(InvalidField):
        await store.dense(asked, EAST, 1, soon())
    with pytest.raises(InvalidField):
        await store.lexical(asked, ("common",), 1, soon())
    with pytest.raises(InvalidField):
        await store.fetch(asked, ["one"], soon())


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED.keys())
async def test_chunk_ids_and_rows_no_filter_can_match_are_refused(
    store: Store, revision: str, name: str
) -> None:
    """The same for the ids a caller asks for and for what an import would write."""
    await store.seal(SPACE, revision)
    with pytest.raises(InvalidField):
        await store.fetch(query(revision=revision), ["one", name], soon())
    with pytest.raises(InvalidField):
        await store.write(SPACE, revision, [row(kb_revision=revision, category=name)])
    assert await store.count(SPACE, revision) == 0


async def test_a_scope_that_lost_its_classes_reads_nothing(store: Store, revision: str) -> None:
    """No permitted class is an error before any store is asked, never an unfiltered search."""
    await fill(store, revision, row(kb_revision=revision))
    asked = without_classes(query(revision=revision))
    with pytest.raises(UnscopedAccess):
        await store.dense(asked, EAST, 1, soon())
    with pytest.raises(UnscopedAccess):
        await store.lexical(asked, ("common",), 1, soon())
    with pytest.raises(UnscopedAccess):
        await store.fetch(asked, ["one"], soon())


async def test_the_most_classes_a_caller_may_have_fit_into_one_search(store: Store, revision: str) -> None:
    """4,096 permitted classes are one filter."""
    await fill(
        store, revision, row(kb_revision=revision), row("hidden", kb_revision=revision, acl_class=9999)
    )
    asked = query(revision=revision, classes=range(1, 4097))
    assert await seen(store, asked, ["one", "hidden"]) == [{"one"}] * 3


async def test_a_passed_deadline_is_an_error_at_once(store: Store, revision: str) -> None:
    """Nothing is searched when no time is left."""
    await fill(store, revision, row(kb_revision=revision))
    with pytest.raises(DeadlineExceeded) as raised:
        await store.dense(query(revision=revision), EAST, 1, Deadline.after(0))
    assert raised.value.stage == "retrieval"


async def test_vectors_of_another_dimension_are_refused(store: Store, revision: str) -> None:
    """A query vector of another space, and a collection prepared for another one."""
    await store.seal(SPACE, revision)
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.dense(query(revision=revision), (1.0, 0.0), 1, soon())
    with pytest.raises(EmbeddingSpaceMismatch):
        await store.prepare(replace(SPACE, dimension=4))
    assert await store.prepare(SPACE) == SPACE.collection


_POOL = [HOSTILE[k] for k in ("injection", "trailing backslash", "newline", "emoji")] + ["t", "k"]
_names = st.sampled_from(_POOL) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def crowd(memory: MemoryVectors, embedded: MilvusStore, real: MilvusStore) -> list[Row]:
    """Rows of many tenants in two shared revisions, the same in all stores."""
    chance = random.Random(20)
    rows = []
    for revision in ("crowd one", "crowd two"):
        rows += [
            row(
                f"c{number}",
                kb_revision=revision,
                tenant_id=chance.choice(_POOL),
                kb_id=chance.choice(_POOL),
                category=chance.choice(["", *_POOL]),
                acl_class=chance.randint(0, 4),
                valid_from=chance.choice([0, NOW, NOW + 1]),
                valid_until=chance.choice([NOW, NOW + 1, NOW + 100]),
            )
            for number in range(150)
        ]
    for one in (memory, embedded, real):
        for revision in ("crowd one", "crowd two"):
            members = [r for r in rows if r.chunk.kb_revision == revision]
            await one.write(SPACE, revision, members)
            await one.seal(SPACE, revision)
    return rows


def _allowed(
    rows: list[Row], names: dict[str, str], classes: set[int], at: int, category: str | None
) -> Iterator[str]:
    for one in (r.chunk for r in rows):
        inside = all(getattr(one, field) == value for field, value in names.items())
        valid = one.valid_from <= at < one.valid_until
        if inside and valid and one.acl_class in classes and category in (None, one.category):
            yield one.chunk_id


def _random_scopes(test: Any) -> Any:
    """The test over scopes of every kind, the same ones on each run."""
    scopes = given(
        tenant=_names,
        kb=_names,
        revision=st.sampled_from(["crowd one", "crowd two"]),
        classes=st.sets(st.integers(1, 5), min_size=1),
        at=st.integers(NOW - 1, NOW + 101),
        category=st.none() | st.just("") | _names,
    )
    steady = settings(
        max_examples=30,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    return steady(scopes(test))


@_random_scopes
async def test_no_scope_ever_sees_a_row_outside_itself(
    store: Store,
    crowd: list[Row],
    tenant: str,
    kb: str,
    revision: str,
    classes: set[int],
    at: int,
    category: str | None,
) -> None:
    """For any scope, every route finds exactly the rows that the typed parts permit."""
    asked = query(tenant, kb, revision, classes, at, category)
    names = {"tenant_id": tenant, "kb_id": kb, "kb_revision": revision}
    if any("\0" in value for value in (tenant, kb, category or "")):
        with pytest.raises(InvalidField):
            await seen(store, asked, ["c1"])
        return
    expected = set(_allowed(crowd, names, classes, at, category))
    assert await seen(store, asked, [r.chunk.chunk_id for r in crowd]) == [expected] * 3


async def test_what_a_query_may_see_is_counted(store: Store, revision: str) -> None:
    """Under its whole filter; of a revision that isn't there nothing is said."""
    own = [row(f"own {n}", kb_revision=revision) for n in range(5)]
    others = [
        row("class", kb_revision=revision, acl_class=2),
        row("later", kb_revision=revision, valid_from=NOW + 1),
        row("kb", kb_revision=revision, kb_id="other"),
    ]
    await fill(store, revision, *own, *others)
    with anyio.fail_after(10):
        while await store.permitted(query(revision=revision), soon()) != len(own):
            await anyio.lowlevel.checkpoint()
    assert await store.permitted(query(revision=revision, classes=(1, 2)), soon()) == 6
    assert await store.permitted(query(revision=revision, classes=(3,)), soon()) == 0
    with pytest.raises(VectorStoreUnavailable):
        await store.permitted(query(revision=f"not {revision}"), soon())
    with pytest.raises(UnscopedAccess):
        await store.permitted(without_classes(query(revision=revision)), soon())


async def test_questions_asked_together_find_what_each_finds_alone(store: Store, revision: str) -> None:
    """The same hits with the same scores and vectors, in the same order, for two scopes at once."""
    chance, sizes = random.Random(35), list[int]()
    await fill(
        store,
        revision,
        *(
            row(
                f"c{number}",
                (chance.gauss(0, 1), chance.gauss(0, 1), chance.gauss(0, 1)),
                tuple(chance.sample(_WORDS, 3)),
                kb_revision=revision,
                acl_class=1 + number % 2,
            )
            for number in range(40)
        ),
    )
    vectors = [(chance.gauss(0, 1), chance.gauss(0, 1), chance.gauss(0, 1)) for _ in range(5)]
    words = [(word, "rare") for word in (*_WORDS[:4], "absent")]
    asked = [query(revision=revision, classes=classes) for classes in ((1, 2), (2,))]
    reads = [
        *(functools.partial(store.dense, one, vector, 10) for one in asked for vector in vectors),
        *(functools.partial(store.lexical, one, some, 10) for one in asked for some in words),
    ]
    alone = [await read(soon()) for read in reads]
    if isinstance(store, MilvusStore):
        store.tell_searches(sizes.append)
    together = await asyncio.gather(*(read(soon()) for read in reads))
    for lone, joined in zip(alone, together, strict=True):
        assert [(hit.chunk, hit.vector) for hit in joined] == [(hit.chunk, hit.vector) for hit in lone]
        assert [hit.score for hit in joined] == pytest.approx([hit.score for hit in lone], abs=1e-6)
    assert set(sizes) <= {len(vectors)}


# the framework's way to read, over the same rows


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_reader(embedded: MilvusStore) -> AsyncIterator[LangChainReader]:
    """LangChain over the child."""
    async with reading_through_langchain(embedded) as reader:
        yield reader


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_reader(real: MilvusStore) -> AsyncIterator[LangChainReader]:
    """LangChain over the server."""
    async with reading_through_langchain(real) as reader:
        yield reader


@asynccontextmanager
async def reading_through_langchain(store: MilvusStore) -> AsyncIterator[LangChainReader]:
    if not installed():
        part_missing("langchain-milvus", "pip install --require-hashes -r requirements/langchain.txt")
    load()  # takes seconds, as at the start of a process
    reader = LangChainReader(store)
    try:
        yield reader
    finally:
        await reader.aclose()


@pytest.fixture(params=["memory", "embedded", "real"])
def read(request: pytest.FixtureRequest) -> tuple[Any, DenseReader]:
    """A store, and a DenseReader of its rows; the twin is both."""
    store = request.getfixturevalue(request.param)
    if request.param == "memory":
        return store, store
    return store, request.getfixturevalue(f"{request.param}_reader")


async def test_both_paths_find_the_same(read: tuple[Store, DenseReader], revision: str) -> None:
    """The same chunks with the same cosines in the same order, as many as asked for."""
    store, reader = read
    vectors = {
        "same": EAST,
        "between": (0.6, 0.8, 0.0),
        "right": (0.0, 1.0, 0.0),
        "opposite": (-1.0, 0.0, 0.0),
    }
    await fill(
        store, revision, *(row(name, vector, kb_revision=revision) for name, vector in vectors.items())
    )
    asked = query(revision=revision)
    hits = await reader.dense(asked, EAST, 10, soon())
    assert [hit.chunk.chunk_id for hit in hits] == list(vectors)
    assert [hit.score for hit in hits] == pytest.approx([1.0, 0.6, 0.0, -1.0], abs=1e-6)
    own = await store.dense(asked, EAST, 10, soon())
    assert [(hit.chunk, round(hit.score, 6)) for hit in hits] == [(h.chunk, round(h.score, 6)) for h in own]
    assert [hit.chunk.chunk_id for hit in await reader.dense(asked, EAST, 2, soon())] == ["same", "between"]
    assert await reader.dense(asked, EAST, 0, soon()) == []


async def test_what_is_not_there_is_an_error_by_the_framework_too(
    read: tuple[Store, DenseReader], revision: str
) -> None:
    """A missing collection or revision is never an empty result, and an empty revision is one."""
    store, reader = read
    with pytest.raises(VectorStoreUnavailable):
        await reader.dense(query(revision=revision), EAST, 1, soon())
    with pytest.raises(VectorStoreUnavailable):
        await reader.dense(query(collection="nowhere"), EAST, 1, soon())
    await store.seal(SPACE, revision)
    assert await reader.dense(query(revision=revision), EAST, 1, soon()) == []


async def test_what_no_store_may_be_asked_the_framework_is_not_asked(
    read: tuple[Store, DenseReader], revision: str
) -> None:
    """No class, no time, another dimension, names that no filter can match."""
    store, reader = read
    await fill(store, revision, row(kb_revision=revision))
    asked = query(revision=revision)
    with pytest.raises(UnscopedAccess):
        await reader.dense(without_classes(asked), EAST, 1, soon())
    with pytest.raises(DeadlineExceeded):
        await reader.dense(asked, EAST, 1, Deadline.after(0))
    with pytest.raises(EmbeddingSpaceMismatch):
        await reader.dense(asked, (1.0, 0.0), 1, soon())
    for name in REFUSED.values():
        with pytest.raises(InvalidField):
            await reader.dense(replace(asked, category=name), EAST, 1, soon())


@_random_scopes
async def test_no_scope_ever_sees_a_row_outside_itself_through_the_framework(
    read: tuple[Store, DenseReader],
    crowd: list[Row],
    tenant: str,
    kb: str,
    revision: str,
    classes: set[int],
    at: int,
    category: str | None,
) -> None:
    """The same rows and the same scopes as by our own three routes."""
    asked = query(tenant, kb, revision, classes, at, category)
    if any("\0" in value for value in (tenant, kb, category or "")):
        with pytest.raises(InvalidField):
            await read[1].dense(asked, EAST, 1000, soon())
        return
    names = {"tenant_id": tenant, "kb_id": kb, "kb_revision": revision}
    found = await read[1].dense(asked, EAST, 1000, soon())
    assert {hit.chunk.chunk_id for hit in found} == set(_allowed(crowd, names, classes, at, category))


@pytest.mark.parametrize("metric", ["L2", "IP"])
async def test_a_number_is_read_by_the_metric_of_the_index_that_is_there(
    embedded: MilvusStore, embedded_reader: LangChainReader, metric: str
) -> None:
    """On an index of distances, or of products, near is near and the opposite is -1."""
    space = EmbeddingSpace(f"contract/{metric}", "test", 3)
    client = (await embedded._connector.connected()).writer
    index = client.prepare_index_params()
    index.add_index("vector", index_name="vector", index_type="FLAT", metric_type=metric)
    index.add_index("bm25", index_name="bm25", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection(space.collection, schema=collection_schema(space, LITE), index_params=index)
    vectors = {"same": EAST, "between": (0.6, 0.8, 0.0), "opposite": (-1.0, 0.0, 0.0)}
    rows = [row(name, vector, embedding_space_id=space.space_id) for name, vector in vectors.items()]
    await embedded.write(space, "r1", rows)
    await embedded.seal(space, "r1")
    hits = await embedded_reader.dense(query(space=space), EAST, 10, soon())
    assert [hit.chunk.chunk_id for hit in hits] == list(vectors)
    assert [hit.score for hit in hits] == pytest.approx([1.0, 0.6, -1.0], abs=1e-6)
