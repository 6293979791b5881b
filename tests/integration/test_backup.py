"""Backups and restores: everything comes back as it was, but for what was taken away since."""

import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.access.authorizer import DocumentRef, RevocationSet
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.objects import open_objects
from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.keeping import PostgresServer as PostgresCatalog
from gateway.adapters.sql.keeping import SqliteFile, SqlKeeping
from gateway.bootstrap.keeping import back_up, confirm, objects_of, restore
from gateway.bootstrap.opening import open_services
from gateway.errors import BackupDamaged, ConfigurationError, RestoreUnconfirmed
from gateway.ingest.governance import AclChange
from gateway.ingest.task import WAIT_S
from gateway.ingest.validator import Validator
from gateway.keeping.backup import Backup
from gateway.keeping.manifest import load_index, manifest_key
from gateway.keeping.pruning import prune
from gateway.keeping.refilling import Refill
from gateway.keeping.restore import BackupSource, load_catalog, refill, restore_objects
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.integration.import_world import KB, LEADS, TENANT, TEXTS, Clock, Crash, Fuse, ImportWorld
from tests.integration.keeping_world import Sites, catalog_of, installation, journal_all
from tests.integration.production_world import environ


def quiet(_line: str) -> None:
    """Nobody reads what a restore says."""


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.soak)])
def sites(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sites]:
    """Installations on SQLite and a folder, and on PostgreSQL and an S3-compatible store."""
    if request.param == "embedded":
        yield Sites(tmp_path)
        return
    s3 = request.getfixturevalue("s3")
    with environ(s3.environment):
        yield Sites(tmp_path, request.getfixturevalue("postgres"), s3)


@pytest.fixture
def embedded(tmp_path: Path) -> Sites:
    """For what doesn't depend on the parts."""
    return Sites(tmp_path)


async def document_of(world: ImportWorld, source: str) -> str:
    """The id of a live document."""
    found = await world.catalog.documents(TENANT, KB)
    return next(document.document_id for document in found if document.source == source)


def catalog_in(world: ImportWorld) -> SqlCatalog:
    """With the ports that an import doesn't need."""
    assert isinstance(world.catalog, SqlCatalog)
    return world.catalog


async def test_a_restored_installation_answers_as_before_but_for_what_was_taken_away(sites: Sites) -> None:
    """Releases, revisions and their rows are the same; what was deleted, narrowed, revoked since stays so."""
    journal, target = sites.store("journal"), sites.store("backups")
    old, new = sites.fresh(journal), sites.fresh(journal)
    async with installation(old) as world:
        await world.learn(TEXTS)
        first = await world.dump()
        await world.learn({"travel": "# travel\n\nFrom now on the travel rule is another one.\n"})
        second = await world.dump()
        ids = {name: await document_of(world, f"{name}.md") for name in TEXTS}
        taken, _ = await back_up(old, target)
        await world.learn({"late": "# late\n\nThis was imported after the backup.\n"})
        await world.catalog.delete_document(TENANT, ids["refund"])
        await world.catalog.set_acl(AclChange(TENANT, ids["access"], LEADS, "ann", 3600))
        await world.catalog.revoke(TENANT, RevocationKind.USER, "eve", "left", "ann")
        lifted = await world.catalog.revoke(TENANT, RevocationKind.GROUP, "staff", "mistake", "ann")
        await world.catalog.lift(TENANT, lifted.revocation_id)
        incarnation = (await world.catalog.tenant_stamp(TENANT)).incarnation
        assert await journal_all(old, catalog_in(world)) == 5
    assert taken.manifest.missing == ()

    report = await restore(new, target, quiet)
    assert (report.replayed, report.releases) == (5, 2)
    assert report.citations > 0
    async with catalog_of(new) as catalog:
        with pytest.raises(RestoreUnconfirmed):
            await catalog.tenant_stamp(TENANT)
        with pytest.raises(RestoreUnconfirmed):
            await catalog.ping()
        assert await catalog.claim("worker", 30, 5) is None
    async with open_services(new) as services:
        assert (await services.readiness.states())["catalog"].code == "restore_unconfirmed"
    assert await confirm(new)
    assert not await confirm(new)

    async with restored(new) as back:
        stamp = await back.catalog.tenant_stamp(TENANT)
        assert stamp.incarnation not in {"", incarnation}
        revoked = await back.catalog.revocations(TENANT)
        assert revoked == RevocationSet(users=frozenset({"eve"}))
        standings = await back.catalog.standings(
            TENANT, await back.kb_id(), [DocumentRef(document_id, 1) for document_id in ids.values()]
        )
        by_name = {name: standings.get(DocumentRef(document_id, 1)) for name, document_id in ids.items()}
        assert by_name["refund"] is not None
        assert by_name["refund"].deleted
        assert by_name["access"] is not None
        assert by_name["access"].document_acl == LEADS
        assert {document.source for document in await back.catalog.documents(TENANT, KB)} == {
            "travel.md",
            "access.md",
        }
        here = await back.dump()
        assert here.without_revision() == second.without_revision("refund.md")
        await back.catalog.roll_back(TENANT, KB)
        assert (await back.dump()).without_revision() == first.without_revision("refund.md")


async def test_a_backup_that_was_cut_short_is_none_and_the_next_one_goes_on(embedded: Sites) -> None:
    """Killed at any call of the target: only what ends with a manifest counts."""
    settings, target = embedded.fresh(embedded.store("journal")), MemoryObjects()
    async with installation(settings) as world:
        await world.learn(TEXTS)
        catalog, objects = SqliteFile(settings.data_dir / "catalog.db"), world.objects
        at, whole = 2, None
        while whole is None:
            with suppress(Crash):
                whole = await Backup(catalog, objects, Fuse(at).wrap(target)).take(spool(embedded))
                break
            with pytest.raises(ConfigurationError) as refused:
                await BackupSource.open(target)
            assert refused.value.reason == "backup_not_found"
            at += 7
        assert at > 20
        assert whole.copied < whole.objects == 9, "it uses what those that were cut short have copied"
        again = await Backup(catalog, objects, target).take(spool(embedded))
        assert (again.objects, again.copied) == (9, 0)


async def test_a_restore_that_was_cut_short_is_run_again(embedded: Sites) -> None:
    """Killed at any call of any part, the same command ends with the same."""
    settings, target = embedded.fresh(embedded.store("journal")), MemoryObjects()
    async with installation(settings) as world:
        await world.learn(TEXTS)
        before = await world.dump()
        catalog = SqliteFile(settings.data_dir / "catalog.db")
        await Backup(catalog, world.objects, target).take(spool(embedded))
    new = embedded.fresh(embedded.store("journal"))
    new.data_dir.mkdir()
    vectors, at, whole = MemoryVectors(), 0, False
    while not whole:
        at += 3
        try:
            await bring_back(new, target, vectors, Fuse(at), spool(embedded))
            whole = True
        except Crash:
            vectors = vectors if at % 2 else MemoryVectors()  # or the vector store is lost as well
    assert at > 12
    async with catalog_of(new) as opened:
        assert await SqlKeeping(opened.database).confirm()
        back = ImportWorld(opened, vectors, objects_of(new), world.clock, real=True)
        assert (await back.dump()).without_revision() == before.without_revision()


def kept_catalog(settings: Settings) -> SqliteFile | PostgresCatalog:
    if settings.database_url is None:
        return SqliteFile(settings.data_dir / "catalog.db")
    return PostgresCatalog(settings.database_url.get_secret_value())


async def bring_back(
    new: Settings, target: MemoryObjects, vectors: MemoryVectors, fuse: Fuse, folder: Path
) -> None:
    """What the command does, over parts that may be gone at any call."""
    backup = await BackupSource.open(fuse.wrap(target))
    objects = fuse.wrap(objects_of(new))
    await restore_objects(backup, objects)
    async with catalog_of(new) as catalog:
        loaded = await SqlKeeping(catalog.database).note()
    if not loaded:
        await load_catalog(backup, fuse.wrap(kept_catalog(new)), folder)
    async with catalog_of(new) as catalog:
        keeping, fused = fuse.wrap(SqlKeeping(catalog.database)), fuse.wrap(vectors)
        filling = Refill(objects, fuse.wrap(catalog), fused, Validator(fused, fused))
        await refill(keeping, filling, quiet)
        await keeping.finish()


@pytest.fixture(params=["embedded", "real"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Sites:
    """Installations on SQLite, and on PostgreSQL; their objects lie in folders."""
    return Sites(tmp_path, request.getfixturevalue("postgres") if request.param == "real" else None)


async def test_running_tasks_wait_again_after_a_restore(databases: Sites) -> None:
    """Whoever held one when the backup was made finds a higher fence. The start that was cut off is given
    back, and the time since the backup doesn't count as working time, or as time to wait.
    """
    target, vectors = MemoryObjects(), MemoryVectors()
    old, new = databases.fresh(databases.store("journal")), databases.fresh(databases.store("journal"))
    async with installation(old) as world:
        accepted = await world.accept(TEXTS)
        held = await world.claim()
        left_s = held.deadline_at - world.clock()
        await Backup(kept_catalog(old), world.objects, target).take(spool(databases))
    await bring_back(new, target, vectors, Fuse(), spool(databases))
    world.clock.advance(2 * WAIT_S)
    async with catalog_of(new, world.clock) as opened:
        assert await SqlKeeping(opened.database).confirm()
        back = ImportWorld(opened, vectors, objects_of(new), world.clock, real=True)
        claim = await back.claim(attempts=1)
        assert (claim.task_id, claim.fence) == (accepted.task_id, held.fence + 2)
        assert databases.postgres or claim.deadline_at - world.clock() > left_s / 2
        await back.worker().work(claim)
        assert len((await back.dump()).sources) == 3


async def test_what_cannot_be_restored_says_why(embedded: Sites) -> None:
    """A damaged object, a catalog that holds something, no such backup, a restore that isn't over."""
    journal, target = embedded.store("journal"), embedded.store("backups")
    old, new = embedded.fresh(journal), embedded.fresh(journal)
    async with installation(old) as world:
        await world.learn({"travel": TEXTS["travel"]})
        await journal_all(old, catalog_in(world))
        await back_up(old, target)
    with pytest.raises(ConfigurationError) as filled:
        await restore(old, target, quiet)
    assert filled.value.reason == "catalog_not_empty"
    blob = next(path for path in (Path(target) / "objects").rglob("*") if path.is_file())
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1])
    with pytest.raises(BackupDamaged):
        await restore(new, target, quiet)
    blob.write_bytes(whole)
    with pytest.raises(ConfigurationError) as unknown:
        await restore(new, target, quiet, backup_id="20200101T000000Z-000000")
    assert unknown.value.reason == "backup_not_found"
    backup = await BackupSource.open(open_objects(target))
    await load_catalog(backup, SqliteFile(new.data_dir / "catalog.db"), spool(embedded))
    with pytest.raises(ConfigurationError) as unfinished:
        await confirm(new)
    assert unfinished.value.reason == "restore_unfinished"


async def test_a_journal_that_is_not_the_backups_or_lacks_entries_is_refused(embedded: Sites) -> None:
    """Nothing is written then; who has none left says so, and is told what that means."""
    journal, target = embedded.store("journal"), embedded.store("backups")
    old, new = embedded.fresh(journal), embedded.fresh(journal)
    async with installation(old) as world:
        await world.catalog.revoke(TENANT, RevocationKind.USER, "mallory", "left", "ann")
        await back_up(old, embedded.store("earlier"))
        await journal_all(old, catalog_in(world))
        await back_up(old, target)
        incarnation = await catalog_in(world).journal_incarnation()

    async def refused(place: str, backups: str = target) -> str:
        with pytest.raises(ConfigurationError) as found:
            await restore(new.model_copy(update={"journal_url": place}), backups, quiet)
        assert found.value.reason == "journal_incomplete"
        assert not (new.data_dir / "catalog.db").exists()
        return found.value.detail

    assert f"{incarnation}/" in await refused(embedded.store("misspelt"))
    await refused(embedded.store("misspelt"), embedded.store("earlier"))
    (entry,) = (Path(journal) / incarnation).glob("*.json")
    entry.unlink()
    assert entry.name.partition("-")[0] in await refused(journal)
    for blob in (Path(target) / "backups").rglob("objects.jsonl"):
        blob.unlink()  # so that what comes after the check ends at once
    said: list[str] = []
    with pytest.raises(BackupDamaged):
        await restore(new, target, said.append, without_journal=True)
    assert any("is valid and visible again" in line for line in said)


async def test_a_restored_installation_knows_its_own_entries_only(embedded: Sites) -> None:
    """What it had sent before bears the old incarnation's name: the next restore doesn't ask for it anew."""
    old, new = embedded.fresh(embedded.store("journal")), embedded.fresh(embedded.store("journal"))
    target = MemoryObjects()
    async with installation(old) as world:
        await world.catalog.revoke(TENANT, RevocationKind.USER, "mallory", "left", "ann")
        await journal_all(old, catalog_in(world))
        await Backup(kept_catalog(old), world.objects, target).take(spool(embedded))
        assert len((await kept_catalog(old).dump(spool(embedded))).journaled) == 1
    new.data_dir.mkdir()
    await bring_back(new, target, MemoryVectors(), Fuse(), spool(embedded))
    async with catalog_of(new) as catalog:
        assert await SqlKeeping(catalog.database).confirm()
        assert (await kept_catalog(new).dump(spool(embedded))).journaled == set()
        await catalog.revoke(TENANT, RevocationKind.USER, "eve", "left", "ann")
        await journal_all(new, catalog)
        assert len((await kept_catalog(new).dump(spool(embedded))).journaled) == 1


ESCAPED = f"escaped-{uuid.uuid4().hex}"


def with_table(record: Any) -> None:
    record["tables"]["../escaped"] = record["tables"]["tenants"]


def with_absolute_table(record: Any) -> None:
    record["tables"][str(Path(tempfile.gettempdir(), ESCAPED))] = record["tables"].pop("tenants")


def with_file_elsewhere(record: Any) -> None:
    record["index"]["key"] = "../secrets"


def with_no_hash(record: Any) -> None:
    record["index"]["sha256"] = "../../secrets"


def with_incarnation_elsewhere(record: Any) -> None:
    record["incarnation"] = ".."


ALTERED = [with_table, with_absolute_table, with_file_elsewhere, with_no_hash, with_incarnation_elsewhere]


async def test_a_manifest_that_names_what_no_backup_has_is_damaged(embedded: Sites) -> None:
    """Whoever may write into the target doesn't get to write elsewhere."""
    old, new, target = embedded.fresh("journal"), embedded.fresh("journal"), MemoryObjects()
    async with installation(old) as world:
        taken = await Backup(kept_catalog(old), world.objects, target).take(spool(embedded))
    key = manifest_key(taken.manifest.backup_id)
    whole = await target.get(key)
    new.data_dir.mkdir()
    for alter in ALTERED:
        record = json.loads(whole)
        alter(record)
        await target.put(key, json.dumps(record).encode())
        folder = spool(embedded)
        with pytest.raises(BackupDamaged):
            await load_catalog(await BackupSource.open(target), kept_catalog(new), folder)
        assert {path.stem for path in folder.iterdir()} <= kept_catalog(new).tables
    assert not list(embedded.folder.rglob("escaped*"))
    assert not Path(tempfile.gettempdir(), f"{ESCAPED}.jsonl").exists()


@pytest.mark.parametrize("key", ["../escaped", "/etc/escaped", "a//b", "a\\b", "originals/../x"])
def test_an_index_that_names_a_place_outside_is_damaged(key: str) -> None:
    """Objects are written under the keys it names."""
    with pytest.raises(BackupDamaged):
        load_index(json.dumps([key, "0" * 64, 1]).encode())


async def test_a_lost_original_is_named_and_the_rest_is_saved(embedded: Sites) -> None:
    """The backup is whole but for it; a deleted document's objects are none of its business."""
    settings, target = embedded.fresh(embedded.store("journal")), embedded.store("backups")
    async with installation(settings) as world:
        await world.learn(TEXTS)
        await world.catalog.delete_document(TENANT, await document_of(world, "travel.md"))
        originals = sorted((settings.data_dir / "objects" / "originals").iterdir())
        lost = next(path for path in originals if b"refund" in path.read_bytes())
        lost.write_bytes(b"something else")
        taken, removed = await back_up(settings, target, keep=1)
    assert taken.manifest.missing == (f"originals/{lost.name}",)
    assert (taken.objects, removed) == (5, 0)


async def test_pruning_leaves_the_newest_backups_and_what_they_need(embedded: Sites) -> None:
    """What only an old backup had is gone with it."""
    settings, target = embedded.fresh(embedded.store("journal")), MemoryObjects()
    async with installation(settings) as world:
        catalog = SqliteFile(settings.data_dir / "catalog.db")
        await world.learn(TEXTS)
        await Backup(catalog, world.objects, target).take(spool(embedded))
        blobs = {one.key async for one in target.list("objects")}
        await world.catalog.delete_document(TENANT, await document_of(world, "travel.md"))
        newest = await Backup(catalog, world.objects, target).take(spool(embedded))
    assert await prune(target, 1) == 1
    left = {one.key async for one in target.list("objects")}
    assert len(left) == newest.objects
    assert left < blobs
    source = await BackupSource.open(target)
    assert source.manifest.backup_id == newest.manifest.backup_id
    for kept in (await source.objects()).values():
        await source.content(kept)


async def test_a_snapshot_is_of_one_moment_while_imports_go_on(sites: Sites) -> None:
    """Each dump holds whole transactions only: every READY version with its manifest and its task."""
    settings = sites.fresh(sites.store("journal"))
    async with installation(settings) as world:
        dumped = kept_catalog(settings)
        async with anyio.create_task_group() as group:
            finished = anyio.Event()

            async def importing() -> None:
                for number in range(3):
                    await world.learn({f"n{number}": TEXTS["travel"] + f"\n\nNumber {number}.\n"})
                finished.set()

            group.start_soon(importing)
            seen = 0
            while not finished.is_set():
                folder = spool(sites)
                await dumped.dump(folder)
                seen = assert_whole(folder)
        assert seen <= 3
        await dumped.dump(folder := spool(sites))
        assert assert_whole(folder) == 3


def assert_whole(folder: Path) -> int:
    """How many READY versions a dump holds, each with its manifest."""
    rows = {path.stem: lines(path) for path in folder.iterdir()}
    ready = [row for row in rows["document_versions"] if row["state"] == "READY"]
    with_manifest = {(row["document_id"], row["version"]) for row in rows["manifest"]}
    assert all((row["document_id"], row["version"]) in with_manifest for row in ready)
    tasks = {row["task_id"] for row in rows["tasks"]}
    assert {row["task_id"] for row in rows["document_versions"]} <= tasks
    assert {row["release_id"] for row in rows["release_documents"]} <= {
        row["release_id"] for row in rows["releases"]
    }
    return len(ready)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def spool(sites: Sites) -> Path:
    """An empty folder."""
    return Path(tempfile.mkdtemp(dir=sites.folder))


@asynccontextmanager
async def restored(settings: Settings) -> AsyncIterator[ImportWorld]:
    """The import path over an installation as it stands on the disk, its Milvus Lite too."""
    child = LiteChild(settings.data_dir / "milvus")
    await child.start()
    store = MilvusStore(child.endpoint)
    try:
        async with catalog_of(settings) as catalog:
            yield ImportWorld(catalog, store, objects_of(settings), Clock(), real=True)
    finally:
        await store.aclose()
        await child.aclose()
