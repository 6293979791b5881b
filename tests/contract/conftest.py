"""Every contract test on the catalog runs over each implementation of it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.sql.catalog import open_catalog
from tests.contract.catalog_world import Catalog, Clock, World


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock()


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as migrations leave it, to copy: migrating takes longer than most tests."""
    path = tmp_path_factory.mktemp("migrated") / "catalog.sqlite3"

    async def migrate() -> None:
        async with open_catalog(path):
            pass

    asyncio.run(migrate())
    return path


@pytest.fixture(params=["memory", "sqlite"])
async def catalog(
    request: pytest.FixtureRequest, migrated: Path, tmp_path: Path, clock: Clock
) -> AsyncIterator[Catalog]:
    """An empty catalog, once in memory and once in a real SQLite file."""
    if request.param == "memory":
        yield MemoryCatalog(clock)
        return
    path = tmp_path / "catalog.sqlite3"
    shutil.copyfile(migrated, path)
    async with open_catalog(path, clock=clock) as opened:
        yield opened


@pytest.fixture
def world(catalog: Catalog, clock: Clock) -> World:
    """The catalog under test with its clock."""
    return World(catalog, clock)
