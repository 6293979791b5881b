"""The doctor's repair beside moves: no row gets a class back that its document has no more."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.access.scope import AccessScope
from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.keeping import SqlKeeping
from gateway.admission.bulkhead import Bulkhead
from gateway.context import Deadline
from gateway.ingest.embedding import TextVectors
from gateway.ingest.passages import Rebuilder
from gateway.ingest.task import TaskKind
from gateway.ingest.validator import Validator
from gateway.keeping.comparing import Compared, Comparison
from gateway.keeping.refilling import Refill
from gateway.release.model import RetrievalRelease
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.integration.import_world import KB, TENANT, TEXTS, Altered, ImportWorld
from tests.integration.keeping_world import Sites, installation

LOST = "access.md"
REVOKED = "travel.md"
DELETED = "refund.md"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[ImportWorld]:
    """An installation on SQLite and a folder with one release, whose rows are kept in memory."""
    async with installation(Sites(tmp_path).fresh(str(tmp_path / "journal"))) as world:
        await world.learn(TEXTS)
        yield world


async def repair(world: ImportWorld, catalog: object = None, vectors: object = None) -> Compared:
    """``catalog`` and ``vectors`` stand for the world's own."""
    keeping: Any = catalog or keeping_of(world)
    store: Any = vectors or world.vectors
    rebuilder = Rebuilder(world.objects, world.parser)
    return await Comparison(
        keeping,
        world.catalog,
        world.objects,
        store,
        filling=Refill(world.objects, world.catalog, store, Validator(store, store), rebuilder.rebuild),
        rebuilder=rebuilder,
        vectors=TextVectors(world.objects, world.embedder, Bulkhead("offline_embedding", 1, 60_000)),
        repair=True,
    ).run()


def keeping_of(world: ImportWorld) -> SqlKeeping:
    assert isinstance(world.catalog, SqlCatalog)
    return SqlKeeping(world.catalog.database)


async def document_of(world: ImportWorld, source: str) -> str:
    found = await world.catalog.documents(TENANT, KB)
    return next(document.document_id for document in found if document.source == source)


async def lose_rows(world: ImportWorld) -> None:
    """So that the doctor has something to write."""
    release = await world.active()
    lost = await document_of(world, LOST)
    await world.vectors.delete_document(world.space, release.kb_revision, TENANT, release.kb_id, lost)


async def revoke(world: ImportWorld) -> None:
    """Its rows shall move to the class of nobody."""
    document_id = await document_of(world, REVOKED)
    await world.catalog.revoke(TENANT, RevocationKind.DOCUMENT, document_id, "leaked", "boss")


async def move(world: ImportWorld) -> None:
    while (claim := await world.catalog.claim("worker", 600, 5)) is not None:
        await world.worker().work(claim)


async def readable(world: ImportWorld) -> set[str]:
    """The documents whose rows carry any class that somebody could be permitted."""
    release: RetrievalRelease = await world.active()
    somebody = AccessScope(TENANT, release.kb_id, KB, 0, 0, "ann", frozenset({"ann"}), frozenset(range(1, 9)))
    query = ScopedQuery(somebody, release, int(world.clock()))
    vector = tuple(float(axis == 0) for axis in range(world.space.dimension))
    hits = await world.vectors.dense(query, vector, 1000, Deadline.after(9000))
    return {hit.chunk.source_uri.removeprefix("file:") for hit in hits}


def once(act: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """The act, at the first call only."""
    pending = [act]

    async def act_once() -> None:
        if pending:
            await pending.pop()()

    return act_once


async def test_a_move_while_the_doctor_compares_is_no_finding(world: ImportWorld) -> None:
    """It read the plan before and the rows after: what it says must be of now."""

    async def revoked_and_moved() -> None:
        await revoke(world)
        await move(world)

    meanwhile = once(revoked_and_moved)

    async def plan(real: Callable[..., Awaitable[Any]], release_id: str) -> Any:
        read = await real(release_id)
        await meanwhile()
        return read

    compared = await repair(world, catalog=Altered(keeping_of(world), plan=plan))
    assert compared.discrepancies == []
    assert await readable(world) == {name + ".md" for name in TEXTS} - {REVOKED}


async def test_what_happens_right_before_the_doctor_writes_is_followed(world: ImportWorld) -> None:
    """Its rows come last, as the catalog said before: a moved one is written again, a deleted one removed."""
    await lose_rows(world)

    async def moved_and_deleted() -> None:
        await revoke(world)
        await world.catalog.delete_document(TENANT, await document_of(world, DELETED))
        await move(world)

    meanwhile = once(moved_and_deleted)

    async def write(real: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        await meanwhile()
        await real(*arguments)

    compared = await repair(world, vectors=Altered(world.vectors, write=write))
    assert [bool(one.repaired) for one in compared.discrepancies] == [True]
    assert await readable(world) == {LOST}
    assert (await repair(world)).discrepancies == []


async def test_while_a_document_is_moving_the_doctor_writes_nothing(world: ImportWorld) -> None:
    """It says so; when the move is over it does what it has to."""
    await lose_rows(world)
    await revoke(world)
    while (claim := await world.claim()).kind is not TaskKind.MOVE:
        await world.worker().work(claim)
    plans = await world.catalog.begin_moves(claim)
    assert len(plans) == 1
    (found,) = (await repair(world)).discrepancies
    assert (found.code, found.repaired) == ("rows_missing", "")
    assert "is moving" in found.detail
    assert LOST not in await readable(world)
    await world.worker().work(claim)
    (found,) = (await repair(world)).discrepancies
    assert found.repaired
    assert await readable(world) == {name + ".md" for name in TEXTS} - {REVOKED}
