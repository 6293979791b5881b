"""The import path's world, once over the in-memory twins and once over the real embedded parts."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.objects import open_objects
from gateway.adapters.sql.catalog import open_catalog
from tests.integration.import_world import Clock, ImportWorld, Vectors


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["twins", "real"])
async def import_vectors(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Vectors]:
    """One store for all tests of a module; each test has revisions of its own."""
    if request.param == "twins":
        yield MemoryVectors()
        return
    child = LiteChild(tmp_path_factory.mktemp("lite"))
    await child.start()
    store = MilvusStore(child.endpoint)
    try:
        yield store
    finally:
        await store.aclose()
        await child.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def migrated_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as migrations leave it, to copy."""
    path = tmp_path_factory.mktemp("migrated") / "catalog.db"
    async with open_catalog(path):
        pass
    return path


@pytest_asyncio.fixture(loop_scope="module")
async def imports(
    import_vectors: Vectors, migrated_catalog: Path, tmp_path: Path
) -> AsyncIterator[ImportWorld]:
    """An empty catalog and object store over the module's vector store."""
    clock = Clock()
    if type(import_vectors) is MemoryVectors:
        yield ImportWorld(MemoryCatalog(clock), MemoryVectors(), MemoryObjects(), clock, real=False)
        return
    path = tmp_path / "catalog.db"
    shutil.copyfile(migrated_catalog, path)
    async with open_catalog(path, clock=clock) as catalog:
        yield ImportWorld(catalog, import_vectors, open_objects(tmp_path / "objects"), clock, real=True)
