"""What is long is done in short writes: others get their turn between them, and a stop loses nothing."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest
import pytest_asyncio
from sqlalchemy import Connection, func, insert, select

from gateway.adapters.sql import counting, purging, reclaim
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.lexicon_tables import release_classes, release_terms
from gateway.adapters.sql.tables import idempotency, outbox
from gateway.context import Deadline
from gateway.errors import StaleFence
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.references import ReclaimPolicy
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, SPACE, Clock, World, scope_of, upload

CLASSES = (
    ClassTerms(1, 10, {f"term-{number}": 4 for number in range(5)}),
    ClassTerms(2, 5, {f"term-{number}": 1 for number in range(3)}),
)
POLICY = ReclaimPolicy(window_s=100.0, releases=1)
T = TypeVar("T")


class TurnDatabase:
    """Somebody else acts between two writes; ``writes`` counts them."""

    def __init__(self, database: Database, between: Callable[[int], Awaitable[None]] | None = None) -> None:
        self._database = database
        self._between = between
        self.writes = 0
        self.look, self.read, self.browse = database.look, database.read, database.browse
        self.ask, self.aclose = database.ask, database.aclose

    async def write(
        self, work: Callable[[Connection, float], T], *, durable: bool = False, loosely: bool = False
    ) -> T:
        if self._between is not None and self.writes:
            with anyio.fail_after(10):
                await self._between(self.writes)
        self.writes += 1
        return await self._database.write(work, durable=durable, loosely=loosely)


class Stopped(Exception):
    """The process ends here."""


async def stop(writes: int) -> None:
    if writes == 2:
        raise Stopped


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def catalog(tmp_path: Path, clock: Clock) -> AsyncIterator[SqlCatalog]:
    async with open_catalog(tmp_path / "catalog.sqlite3", clock=clock) as opened:
        yield opened


@pytest.fixture
def world(catalog: SqlCatalog, clock: Clock) -> World:
    return World(catalog, clock)


async def begun(world: World) -> tuple[TaskClaim, ReleasePlan]:
    await world.import_ready(upload("a"))
    claim = await world.release_claim()
    return claim, await world.catalog.begin_release(claim, SPACE, CONFIG)


async def counted(world: World, plan: ReleasePlan) -> TermStatistics:
    terms = ("term-0", "term-4")
    query = ScopedQuery(scope_of("acme", plan.kb_id, [1, 2]), plan.as_release(), int(world.clock()))
    return await world.catalog.statistics(query, terms, Deadline.after(60_000))


async def rows(catalog: SqlCatalog) -> list[int]:
    """Of classes and of terms, whoever they belong to."""
    tables = (release_classes, release_terms)
    return await catalog.database.browse(
        lambda c: [c.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]
    )


ALL = TermStatistics(15, {"term-0": 5, "term-4": 4})


@pytest.mark.parametrize("size", [1, 3])
async def test_a_revocation_gets_its_turn_while_terms_are_stored(
    world: World, catalog: SqlCatalog, size: int
) -> None:
    """Whatever the pieces, the same is counted; twice as well as once."""
    claim, plan = await begun(world)
    served = []

    async def revoke(writes: int) -> None:
        served.append(await catalog.revoke("acme", RevocationKind.USER, f"user-{writes}", "x", "olga"))

    for _ in range(2):
        database = TurnDatabase(catalog.database, revoke)
        await counting.store(database, claim, plan.kb_revision, CLASSES, size=size)
        assert await counted(world, plan) == ALL
    assert database.writes >= 10 / size
    assert len(served) >= 10 / size


async def test_terms_of_a_build_that_stopped_are_stored_anew(world: World, catalog: SqlCatalog) -> None:
    """What it had stored by then isn't counted twice."""
    claim, plan = await begun(world)
    with pytest.raises(Stopped):
        await counting.store(TurnDatabase(catalog.database, stop), claim, plan.kb_revision, CLASSES, size=2)
    assert (await rows(catalog))[1] > 0
    await catalog.store_terms(claim, plan.kb_revision, CLASSES)
    assert await counted(world, plan) == ALL


async def test_a_worker_that_lost_its_claim_half_way_stores_no_further(
    world: World, catalog: SqlCatalog
) -> None:
    """Each piece is written under the claim."""
    claim, plan = await begun(world)

    async def give_back(writes: int) -> None:
        if writes == 2:
            await catalog.release_claim(claim)

    database = TurnDatabase(catalog.database, give_back)
    with pytest.raises(StaleFence):
        await counting.store(database, claim, plan.kb_revision, CLASSES, size=2)
    assert database.writes == 3


async def failed_with_terms(world: World) -> ReleasePlan:
    """Of a task that has ended."""
    claim, plan = await begun(world)
    await world.catalog.store_terms(claim, plan.kb_revision, CLASSES)
    assert await counted(world, plan) == ALL
    await world.catalog.finish(claim, Ending(TaskState.FAILED))
    return plan


async def reclaim_claim(world: World) -> TaskClaim:
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 1
    claim = await world.claim()
    assert claim.kind is TaskKind.RECLAIM
    return claim


async def test_a_reclaimed_revision_counts_nothing_while_its_terms_are_dropped(
    world: World, catalog: SqlCatalog
) -> None:
    """Not even a half of them."""
    plan = await failed_with_terms(world)
    seen: list[TermStatistics] = []

    async def look(writes: int) -> None:
        seen.append(await counted(world, plan))

    await reclaim.begin(TurnDatabase(catalog.database, look), await reclaim_claim(world), POLICY, size=2)
    assert len(seen) > 3
    assert set(map(repr, seen)) == {repr(TermStatistics(0, {}))}
    assert await rows(catalog) == [0, 0]


async def test_a_reclaim_that_stopped_goes_on_dropping(world: World, catalog: SqlCatalog) -> None:
    """The revision is due until it is swept."""
    await failed_with_terms(world)
    claim = await reclaim_claim(world)
    with pytest.raises(Stopped):
        await reclaim.begin(TurnDatabase(catalog.database, stop), claim, POLICY, size=2)
    assert 0 < (await rows(catalog))[1] < 8
    [revision] = await catalog.begin_reclaim(claim, POLICY)
    assert await rows(catalog) == [0, 0]
    await catalog.swept(claim, revision)


async def test_dropping_takes_one_revision_alone(world: World, catalog: SqlCatalog) -> None:
    """The others' terms have the same names."""
    gone = await failed_with_terms(world)
    claim = await world.release_claim()
    kept = await catalog.begin_release(claim, SPACE, CONFIG)
    await catalog.store_terms(claim, kept.kb_revision, CLASSES)
    await catalog.mark_reclaimed("acme", gone.release_id)
    assert await counted(world, kept) == ALL
    assert await rows(catalog) == [2, 8]


async def test_looking_for_what_is_owed_writes_once(world: World, catalog: SqlCatalog) -> None:
    """Whoever revokes waits for no search through all documents."""
    await world.import_ready(upload("a"))
    await world.release()
    database = TurnDatabase(catalog.database)
    assert await reclaim.schedule(database, POLICY, 3600.0) == 0
    assert database.writes == 1


async def test_what_somebody_else_has_seen_to_meanwhile_is_not_queued_again(
    world: World, catalog: SqlCatalog
) -> None:
    """What was found beside the writer is looked at again under it."""
    [ref] = await world.import_ready(upload("a"))
    task_id = await catalog.delete_document("acme", ref.document_id)
    claim = await catalog.claim("worker", 30.0, 5)
    assert claim is not None
    assert claim.task_id == task_id
    await catalog.finish(claim, Ending(TaskState.FAILED))
    made: list[int] = []

    async def schedule_too(writes: int) -> None:
        made.append(await catalog.schedule_reclaims(POLICY, 3600.0))

    database = TurnDatabase(catalog.database, schedule_too)
    assert await reclaim.schedule(database, POLICY, 3600.0) == 0
    assert made == [1]


async def test_keys_and_entries_of_long_ago_are_purged_in_turns(world: World, catalog: SqlCatalog) -> None:
    """All of them in the end."""
    many = range(4001)

    def fill(connection: Connection, now: float) -> None:
        key = {"tenant": "acme", "subject": "ann", "request_hash": "", "answer": "{}", "created_at": 0.0}
        entry = {"topic": "task.accepted", "payload": "{}", "created_at": 0.0}
        connection.execute(insert(idempotency), [{**key, "key": str(number)} for number in many])
        connection.execute(insert(outbox), [entry for _ in many])

    await catalog.database.write(fill)
    database = TurnDatabase(catalog.database)
    assert await purging.purge(database, 86_400.0, 86_400.0) == 0
    assert database.writes == 7
    left = await catalog.database.browse(
        lambda c: [c.execute(select(func.count()).select_from(t)).scalar_one() for t in (idempotency, outbox)]
    )
    assert left == [0, 1]
