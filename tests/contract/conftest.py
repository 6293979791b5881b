"""Every contract test on the catalog runs over each implementation of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.adapters.memory.catalog import MemoryCatalog
from tests.contract.catalog_world import Catalog, Clock, World


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
async def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Catalog]:
    """An empty catalog, once in memory and once in a real SQLite file."""
    if request.param == "memory":
        yield MemoryCatalog(clock)
        return
    # Imported here so that the twin can be tested where the SQL adapter's libraries are missing.
    from gateway.adapters.sql.catalog import open_catalog

    async with open_catalog(tmp_path / "catalog.sqlite3", clock=clock) as opened:
        yield opened


@pytest.fixture
def world(catalog: Catalog, clock: Clock) -> World:
    """The catalog under test with its clock."""
    return World(catalog, clock)
