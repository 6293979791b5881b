"""Every contract test on the catalog runs over each implementation of it."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.sql.catalog import open_catalog, open_postgres
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.sqlite import SqliteDatabase
from tests.contract.catalog_world import Catalog, Clock, World
from tests.harness.empty_catalog import emptied

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock()


class TestsClock:
    """The clock of a database that outlives tests: each test's own, one after the other."""

    def __init__(self) -> None:
        self.current = Clock()

    def __call__(self) -> float:
        return self.current()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def postgres_catalog(postgres: "PostgresServer") -> AsyncIterator[tuple[Database, TestsClock]]:
    """A database on PostgreSQL for the tests of one module: emptying it is cheaper than connecting again."""
    url, clock = postgres.migrated(), TestsClock()
    async with open_postgres(url, connections=2, cap_s=10):
        pass  # the first opening leaves an incarnation
    database = PostgresDatabase(postgres_url(url), connections=2, cap_s=10, clock=clock)
    yield database, clock
    await database.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sqlite_catalog(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Database, TestsClock]]:
    """A SQLite file for the tests of one module, likewise."""
    path, clock = tmp_path_factory.mktemp("catalog") / "catalog.sqlite3", TestsClock()
    async with open_catalog(path):
        pass
    database = SqliteDatabase(path, clock)
    yield database, clock
    await database.aclose()


@pytest.fixture(params=["memory", "embedded", "real"])
def opening(request: pytest.FixtureRequest, clock: Clock) -> AbstractAsyncContextManager[Catalog]:
    """The way to an empty catalog: in memory, in a real SQLite file, in a real PostgreSQL."""
    if request.param == "memory":
        return contextlib.nullcontext(MemoryCatalog(clock))
    kept = {"embedded": "sqlite_catalog", "real": "postgres_catalog"}[request.param]
    database, its_clock = request.getfixturevalue(kept)
    its_clock.current = clock
    return emptied(database)


@pytest_asyncio.fixture(loop_scope="module")
async def catalog(opening: AbstractAsyncContextManager[Catalog]) -> AsyncIterator[Catalog]:
    """An empty catalog under test."""
    async with opening as opened:
        yield opened


@pytest.fixture
def world(catalog: Catalog, clock: Clock) -> World:
    """The catalog under test with its clock."""
    return World(catalog, clock)
