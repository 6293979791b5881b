"""Every contract test on the catalog runs over each implementation of it."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.sql.catalog import open_catalog, open_postgres
from tests.contract.catalog_world import Catalog, Clock, World
from tests.harness.empty_postgres import empty_catalog

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file as migrations leave it, to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "catalog.sqlite3"

    async def migrate() -> None:
        async with open_catalog(path):
            pass

    asyncio.run(migrate())
    return path


@pytest.fixture(scope="session")
def opened_once(postgres: "PostgresServer") -> str:
    """The URL of a PostgreSQL database that a catalog has been opened in."""
    url = postgres.migrated()

    async def open_once() -> None:
        async with open_postgres(url, connections=2, cap_s=10):
            pass

    asyncio.run(open_once())
    return url


@pytest.fixture(params=["memory", "embedded", "real"])
def opening(request: pytest.FixtureRequest, clock: Clock) -> AbstractAsyncContextManager[Catalog]:
    """The way to an empty catalog: in memory, in a real SQLite file, in a real PostgreSQL."""
    if request.param == "memory":
        return contextlib.nullcontext(MemoryCatalog(clock))
    if request.param == "embedded":
        path = request.getfixturevalue("tmp_path") / "catalog.sqlite3"
        shutil.copyfile(request.getfixturevalue("migrated"), path)
        return open_catalog(path, clock=clock)
    return empty_catalog(request.getfixturevalue("opened_once"), clock)


@pytest.fixture
async def catalog(opening: AbstractAsyncContextManager[Catalog]) -> AsyncIterator[Catalog]:
    """An empty catalog under test."""
    async with opening as opened:
        yield opened


@pytest.fixture
def world(catalog: Catalog, clock: Clock) -> World:
    """The catalog under test with its clock."""
    return World(catalog, clock)
