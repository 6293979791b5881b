"""Restores of what isn't whole: releases reclaimed beside a backup, lost files, acts that weren't sent."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.access.authorizer import RevocationSet
from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.keeping import SqliteFile, SqlKeeping
from gateway.bootstrap.journal import journal_of
from gateway.bootstrap.keeping import objects_of
from gateway.errors import DocumentUnusable
from gateway.ingest.passages import Rebuilder
from gateway.ingest.references import VECTORS
from gateway.ingest.validator import Validator
from gateway.keeping.backup import Backup, TakenBackup
from gateway.keeping.catalog import CatalogDump
from gateway.keeping.lost_vectors import LostVectors
from gateway.keeping.refilling import Refill
from gateway.keeping.restore import (
    BackupSource,
    load_catalog,
    refill,
    replay,
    restore_objects,
    send_on,
)
from gateway.release.model import ReleaseState
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.integration.import_world import TENANT, TEXTS, WINDOW_S, Altered, Clock, ImportWorld
from tests.integration.keeping_world import Sites, catalog_of, installation, journal_all


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


def spool(sites: Sites) -> Path:
    """An empty folder."""
    return Path(tempfile.mkdtemp(dir=sites.folder))


def dumped(settings: Settings, **methods: Any) -> Any:
    """The catalog of a site, with these methods replaced."""
    return Altered(SqliteFile(settings.data_dir / "catalog.db"), **methods)


async def kept(sites: Sites, settings: Settings, target: MemoryObjects, **methods: Any) -> TakenBackup:
    return await Backup(dumped(settings, **methods), objects_of(settings), target).take(spool(sites))


@asynccontextmanager
async def back(
    sites: Sites, new: Settings, target: MemoryObjects, *, embedder: FixedEmbedder | None = None
) -> AsyncIterator[tuple[ImportWorld, list[str]]]:
    """What the command does and the operator confirms, over these parts; and what it said."""
    new.data_dir.mkdir(mode=0o700, exist_ok=True)
    backup, objects, vectors = await BackupSource.open(target), objects_of(new), MemoryVectors()
    await restore_objects(backup, objects)
    if not (new.data_dir / "catalog.db").exists():
        await load_catalog(backup, SqliteFile(new.data_dir / "catalog.db"), spool(sites))
    said: list[str] = []
    async with catalog_of(new) as catalog:
        world = ImportWorld(catalog, vectors, objects, Clock(), real=True)
        keeping, journal = SqlKeeping(catalog.database), journal_of(new)
        await send_on(journal, keeping, backup.manifest.incarnation)
        await replay(journal, keeping, backup.manifest.taken_at)
        lost = LostVectors(
            objects,
            catalog,
            world.text_vectors(embedder=embedder),
            Rebuilder(objects, world.parser).rebuild,
        )
        filling = Refill(objects, catalog, vectors, Validator(vectors, vectors))
        await refill(keeping, filling, said.append, lost)
        await keeping.finish()
        assert await keeping.confirm()
        yield world, said


async def edition(world: ImportWorld, number: int) -> None:
    await world.learn({"travel": TEXTS["travel"] + f"\n\nThis is edition {number} of it.\n"})


async def states(world: ImportWorld) -> list[ReleaseState]:
    """Oldest first."""
    return [release.state for release in sorted(await world.releases(), key=lambda one: one.created_at)]


async def sweep_all(world: ImportWorld) -> None:
    """Reclaims what is due, and takes the objects away that nobody needs by then."""
    world.clock.advance(WINDOW_S + 1)
    await world.catalog.schedule_reclaims(world.policy, 3600.0)
    while (claim := await world.catalog.claim("worker", 600.0, 5)) is not None:
        await world.worker().work(claim)
    found = [one.key async for one in world.objects.list("")]
    await world.removal().take_away(found)


async def test_a_release_reclaimed_while_a_backup_is_taken_is_not_in_it(sites: Sites) -> None:
    """Its objects are gone when they are to be copied: a newer snapshot is taken, which doesn't name it."""
    old, new, target = sites.fresh(""), sites.fresh(""), MemoryObjects()
    async with installation(old) as world:
        for number in range(3):
            await edition(world, number)
        dumps: list[CatalogDump] = []

        async def dump(real: Any, folder: Path) -> CatalogDump:
            dumps.append(await real(folder))
            if len(dumps) == 1:
                await sweep_all(world)
            return dumps[-1]

        taken = await kept(sites, old, target, dump=dump)
        before = await world.dump()
    assert (len(dumps), taken.manifest.missing) == (2, ())
    async with back(sites, new, target) as (world, said):
        assert await states(world) == [ReleaseState.RECLAIMED, ReleaseState.RETIRED, ReleaseState.ACTIVE]
        assert (await world.dump()).without_revision() == before.without_revision()
    assert len(said) == 2


async def test_a_retired_release_that_nothing_brings_back_is_given_up(sites: Sites) -> None:
    """One line says so; what is active answers, and nobody can go back to the other one."""
    old, new, target = sites.fresh(""), sites.fresh(""), MemoryObjects()
    async with installation(old) as world:
        await edition(world, 1)
        first = [one.key async for one in world.objects.list("")]
        await edition(world, 2)
        before = await world.dump()
        for key in first:
            if not key.startswith(VECTORS):
                await world.objects.delete(key)
        taken = await kept(sites, old, target)
        assert taken.manifest.missing
    async with back(sites, new, target) as (world, said):
        assert await states(world) == [ReleaseState.RECLAIMED, ReleaseState.ACTIVE]
        assert (await world.dump()).without_revision() == before.without_revision()
    assert sum("given up" in line for line in said) == 1


async def test_a_lost_vector_file_is_made_again_by_the_embedder_that_made_it(sites: Sites) -> None:
    """Another one isn't asked: document and file are named, and what helps. The same restore then goes on."""
    old, new, target = sites.fresh(""), sites.fresh(""), MemoryObjects()
    async with installation(old) as world:
        await world.learn(TEXTS)
        before = await world.dump()
        lost = next(one.key for one in [one async for one in world.objects.list(VECTORS)])
        await world.objects.delete(lost)
        assert (await kept(sites, old, target)).manifest.missing == (lost,)
        other = FixedEmbedder(space_id="another")
    with pytest.raises(DocumentUnusable) as refused:
        async with back(sites, new, target, embedder=other):
            pass
    assert lost in refused.value.detail
    assert ".md" in refused.value.detail
    assert "doctor --compare --repair" in refused.value.detail
    async with back(sites, new, target) as (world, _):
        assert (await world.dump()).without_revision() == before.without_revision()
        assert await world.objects.exists(lost)


async def test_acts_that_were_not_sent_yet_keep_their_names(sites: Sites) -> None:
    """Sent again under others, they would come after the lifts of what they did."""
    journal = sites.store("journal")
    old, middle, last = (sites.fresh(journal) for _ in range(3))
    earlier, later = MemoryObjects(), MemoryObjects()
    async with installation(old) as world:
        await world.learn({"travel": TEXTS["travel"]})
        await kept(sites, old, earlier)
        eve = await world.catalog.revoke(TENANT, RevocationKind.USER, "eve", "left", "ann")
        await world.catalog.revoke(TENANT, RevocationKind.USER, "mallory", "left", "ann")
        await kept(sites, old, later)
        await world.catalog.lift(TENANT, eve.revocation_id)
        assert isinstance(world.catalog, SqlCatalog)
        assert await journal_all(old, world.catalog) == 3
    expected = RevocationSet(users=frozenset({"mallory"}))
    async with back(sites, middle, later) as (world, _):
        assert await world.catalog.revocations(TENANT) == expected
        assert isinstance(world.catalog, SqlCatalog)
        assert await journal_all(middle, world.catalog) == 0
    assert len(await journal_of(middle).entries()) == 3
    async with back(sites, last, earlier) as (world, _):
        assert await world.catalog.revocations(TENANT) == expected
