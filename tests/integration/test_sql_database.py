"""The SQLite catalog as a database: cancels, locks, crashes, a full disk. Real files, real processes."""

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy import Connection, text

from gateway.access.authorizer import AccessCatalog
from gateway.adapters.sql import api_keys
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog
from gateway.adapters.sql.sqlite import SqliteDatabase
from gateway.adapters.sql.sqlite_memory import SqliteMemory
from gateway.errors import CatalogUnavailable, ConfigurationError, InvalidField, NotFound, ReleaseConflict
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.task import Ending, TaskState
from gateway.observe.audit import AuditLog, AuditRecord
from gateway.release.catalog import ReleaseCatalog
from gateway.retrieval.lexicon import Lexicon
from gateway.stream.revocation import RevocationCatalog, RevocationKind
from tests.contract.catalog_world import HOSTILE_NAMES, import_of, upload

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalog's file will be."""
    return tmp_path / "catalog.sqlite3"


@pytest.fixture
async def catalog(path: Path) -> AsyncIterator[SqlCatalog]:
    """An empty catalog in a file."""
    async with open_catalog(path) as opened:
        yield opened


@pytest.fixture
async def database(path: Path, catalog: SqlCatalog) -> AsyncIterator[SqliteDatabase]:
    """A second door to the catalog's file, with a writer of its own."""
    opened = SqliteDatabase(path, lambda: 0.0)
    yield opened
    await opened.aclose()


@contextlib.contextmanager
def foreign_lock(path: Path) -> Iterator[None]:
    """Somebody else's write transaction on the file."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def record(number: int) -> AuditRecord:
    return AuditRecord(float(number), "acme", "ann", "asked", f"request-{number}", {"number": number})


async def test_it_is_every_catalog_port(catalog: SqlCatalog) -> None:
    """Checked by the type checker; the contract tests check what they do."""
    access: AccessCatalog = catalog
    release: ReleaseCatalog = catalog
    tasks: TaskStore = catalog
    versions: VersionStore = catalog
    releases: ReleaseStore = catalog
    revocations: RevocationCatalog = catalog
    audit: AuditLog = catalog
    lexicon: Lexicon = catalog
    assert {
        id(port) for port in (access, release, tasks, versions, releases, revocations, audit, lexicon)
    } == {id(catalog)}


async def test_cancels_inside_transactions_leave_the_database_usable(database: SqliteDatabase) -> None:
    """300 tasks are cancelled while their transaction is open: each commits or rolls back whole."""
    for number in range(300):
        inside, go_on = threading.Event(), threading.Event()

        def work(connection: Connection, now: float, number: int = number) -> None:
            connection.execute(text("INSERT INTO meta VALUES (:key, 'first')"), {"key": f"{number}-first"})
            inside.set()  # noqa: B023 - awaited in the same round
            assert go_on.wait(10)  # noqa: B023
            connection.execute(text("INSERT INTO meta VALUES (:key, 'second')"), {"key": f"{number}-second"})
            if number % 3 == 0:
                raise InvalidField("rolled back")

        writing = asyncio.ensure_future(database.write(work))
        with anyio.fail_after(10):
            await asyncio.to_thread(inside.wait, 10)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        go_on.set()
    with anyio.fail_after(10):
        await database.write(lambda c, now: c.execute(text("INSERT INTO meta VALUES ('last', '')")))
        rows = await database.read(lambda c: c.execute(text("SELECT key FROM meta")).scalars().all())
    kept = {key for key in rows if "-" in key}
    assert kept == {f"{n}-{half}" for n in range(300) if n % 3 for half in ("first", "second")}


async def test_cancelled_calls_of_the_ports_leave_the_catalog_usable(catalog: SqlCatalog) -> None:
    """Cancelled at every moment between the call and its answer, waiting or running."""
    for number in range(100):
        calls = [
            asyncio.ensure_future(catalog.accept_import(import_of(upload(f"{number}")))),
            asyncio.ensure_future(catalog.claim("worker", 30, 5)),
            asyncio.ensure_future(catalog.documents("acme", "handbook")),
        ]
        for _ in range(number % 4):
            await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    with anyio.fail_after(10):
        accepted = await catalog.accept_import(import_of(upload("the last")))
        known = await catalog.documents("acme", "handbook")
    assert accepted.documents[0].document_id in {document.document_id for document in known}


async def test_a_foreign_lock_is_reported_and_outlived(path: Path, catalog: SqlCatalog) -> None:
    """Writing fails after the busy timeout, reading goes on meanwhile, and both work again after it."""
    await catalog.append(record(1))
    with anyio.fail_after(30):
        with foreign_lock(path):
            writing = asyncio.ensure_future(catalog.append(record(2)))
            assert await catalog.entries("acme", 10) == [record(1)]
            await catalog.ping()
            with pytest.raises(CatalogUnavailable):
                await writing
        await catalog.append(record(3))
    assert await catalog.entries("acme", 10) == [record(3), record(1)]


async def test_a_full_disk_is_reported_and_nothing_is_half_written(
    catalog: SqlCatalog, database: SqliteDatabase
) -> None:
    """Once there is room again, writing works without a restart."""
    full = SqlCatalog(database)
    await full.append(record(0))
    pages = await database.write(lambda c, now: int(c.exec_driver_sql("PRAGMA page_count").scalar_one()))
    await database.write(lambda c, now: c.exec_driver_sql(f"PRAGMA max_page_count = {pages + 3}").scalar())
    big = import_of(*(upload(f"{n}" * 2000) for n in range(50)))
    for _ in range(2):
        with pytest.raises(CatalogUnavailable, match="no room left"):
            await full.accept_import(big)
        assert await catalog.documents("acme", "handbook") == []
        assert (await catalog.tenant_stamp("acme")).knowledge_bases == ()
    await database.write(lambda c, now: c.exec_driver_sql("PRAGMA max_page_count = 100000").scalar())
    assert len((await full.accept_import(big)).documents) == 50


# -- what is kept of the reads that every request makes ---------------------------------------------


class _Counting(SqliteDatabase):
    """Counts the reads that go to a thread."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, lambda: 0.0)
        self.reads = 0

    async def read(self, work: Callable[[Connection], T]) -> T:
        self.reads += 1
        return await super().read(work)


@pytest.fixture
async def counting(path: Path, catalog: SqlCatalog) -> AsyncIterator[_Counting]:
    """A door to the catalog's file that counts."""
    opened = _Counting(path)
    yield opened
    await opened.aclose()


def values(connection: Connection, keys: Sequence[str]) -> Mapping[str, str | None]:
    """A question of the tests: rows of ``meta``."""
    rows = connection.execute(text("SELECT key, value FROM meta"))
    return dict.fromkeys(keys) | {key: value for key, value in rows if key in keys}


def broken(connection: Connection, keys: Sequence[str]) -> Mapping[str, str]:
    connection.exec_driver_sql("SELECT * FROM no_such_table")
    return {}


def store(key: str, value: str) -> Callable[[Connection, float], object]:
    return lambda connection, now: connection.execute(
        text("INSERT OR REPLACE INTO meta VALUES (:key, :value)"), {"key": key, "value": value}
    )


@pytest.mark.parametrize("door", ["own", "other"])
async def test_a_write_is_seen_by_the_very_next_question(
    catalog: SqlCatalog, counting: _Counting, database: SqliteDatabase, door: str
) -> None:
    """1,000 rounds, written through the same door and through another; what is unchanged costs no read."""
    writer = counting if door == "own" else database
    for number in range(1000):
        await writer.write(store("round", f"{number}"))
        for _ in range(3):
            assert await counting.ask(values, "round") == f"{number}"
    assert counting.reads == 1000


@pytest.mark.soak
async def test_a_revocation_is_never_missed(counting: _Counting) -> None:
    """Revoked and lifted a hundred times: each question knows, while others ask all the time."""
    catalog = SqlCatalog(counting)
    over = False

    async def others() -> None:
        while not over:
            await catalog.tenant_stamp("acme")
            await catalog.revocations("acme")
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(others)
        for number in range(100):
            revoked = await catalog.revoke("acme", RevocationKind.USER, "ann", "left", "admin")
            assert (await catalog.tenant_stamp("acme")).revocation_epoch == 2 * number + 1
            assert (await catalog.revocations("acme")).users == {"ann"}
            await catalog.lift("acme", revoked.revocation_id)
            assert (await catalog.tenant_stamp("acme")).revocation_epoch == 2 * number + 2
            assert (await catalog.revocations("acme")).users == frozenset()
        over = True


@pytest.mark.parametrize("asked_meanwhile", [False, True])
async def test_a_write_during_a_read_is_not_hidden_by_it(
    counting: _Counting, database: SqliteDatabase, asked_meanwhile: bool
) -> None:
    """The read's own call came before the write; no later call gets what it found."""
    found, go_on = threading.Event(), threading.Event()

    def slow_at_first(connection: Connection, keys: Sequence[str]) -> Mapping[str, str | None]:
        answers = values(connection, keys)
        if not found.is_set():
            found.set()
            assert go_on.wait(10)
        return answers

    await database.write(store("key", "old"))
    with anyio.fail_after(30):
        early = asyncio.ensure_future(counting.ask(slow_at_first, "key"))
        await asyncio.to_thread(found.wait, 10)
        await database.write(store("key", "new"))
        if asked_meanwhile:
            assert await counting.ask(slow_at_first, "key") == "new"
        go_on.set()
        assert await early == "old"
        assert await counting.ask(slow_at_first, "key") == "new"


async def test_what_is_kept_is_bounded_and_the_newest_stays(counting: _Counting) -> None:
    """Whoever makes up keys pushes others out, and no more than that."""
    for number in range(1500):
        assert await counting.ask(values, f"made up {number}") is None
    read = counting.reads
    await counting.ask(values, "made up 1499")
    assert counting.reads == read
    await counting.ask(values, "made up 0")
    assert counting.reads == read + 1


async def test_a_question_that_fails_is_asked_again(counting: _Counting) -> None:
    """Errors aren't kept."""
    with pytest.raises(InvalidField):
        await counting.ask(api_keys.found, "\ud800")
    with pytest.raises(CatalogUnavailable):
        await counting.ask(broken, "x")
    assert await counting.ask(values, "none") is None


async def test_without_a_look_at_the_version_nothing_is_kept(path: Path) -> None:
    """Each call then reads for itself."""
    memory = SqliteMemory(lambda: sqlite3.connect(path.parent / "no such folder" / "file"))
    assert memory.kept() is not memory.kept()
    memory.close()


async def test_a_memory_that_was_closed_knows_nothing(path: Path, catalog: SqlCatalog) -> None:
    """The next look is made by another connection, whose numbers mean something else."""
    memory = SqliteMemory(lambda: sqlite3.connect(path))
    answers = memory.kept()
    assert memory.kept() is answers
    memory.close()
    assert memory.kept() is not answers
    memory.close()


async def test_a_closed_database_answers_no_question(counting: _Counting) -> None:
    """Not from memory either."""
    assert await counting.ask(values, "none") is None
    await counting.aclose()
    with pytest.raises(CatalogUnavailable):
        await counting.ask(values, "none")


async def test_a_constraint_that_breaks_is_a_catalog_error(database: SqliteDatabase) -> None:
    """No error of the driver leaves the adapter."""
    with pytest.raises(CatalogUnavailable):
        await database.write(lambda c, now: c.execute(text("INSERT INTO meta VALUES ('incarnation', '')")))
    with pytest.raises(CatalogUnavailable):
        await database.write(lambda c, now: c.execute(text("INSERT INTO releases (kb_id) VALUES ('none')")))
    with pytest.raises(CatalogUnavailable):
        await database.read(lambda c: c.execute(text("INSERT INTO meta VALUES ('reader', '')")))


async def test_foreign_keys_are_enforced(database: SqliteDatabase) -> None:
    """SQLite leaves them off unless told otherwise on each connection."""
    orphan = "INSERT INTO acl_classes VALUES ('no such kb', 1, '', '[]', '[]')"
    with pytest.raises(CatalogUnavailable):
        await database.write(lambda c, now: c.execute(text(orphan)))


async def test_reading_survives_a_reader_that_failed(database: SqliteDatabase) -> None:
    """Its connection is thrown away, and there are as many as before."""
    for _ in range(20):
        with pytest.raises(CatalogUnavailable):
            await database.read(lambda c: c.exec_driver_sql("SELECT * FROM no_such_table"))
    with anyio.fail_after(10):
        assert await database.read(lambda c: c.exec_driver_sql("SELECT 1").scalar()) == 1


async def test_a_durable_write_waits_for_the_disk(database: SqliteDatabase) -> None:
    """FULL is 2, NORMAL is 1; one doesn't leak into the other."""
    for durable in (False, True, False, True):
        mode = await database.write(
            lambda c, now: c.exec_driver_sql("PRAGMA synchronous").scalar(), durable=durable
        )
        assert mode == (2 if durable else 1)


class _Noting(SqliteDatabase):
    """Notes which writes ask to be durable."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, lambda: 0.0)
        self.durable: list[bool] = []

    async def write(
        self, work: Callable[[Connection, float], T], *, durable: bool = False, loosely: bool = False
    ) -> T:
        self.durable.append(durable)
        return await super().write(work, durable=durable, loosely=loosely)


async def test_what_protects_people_is_durable(path: Path, catalog: SqlCatalog) -> None:
    """Revoking, lifting, deleting, and both ways to switch releases."""
    noting = _Noting(path)
    careful = SqlCatalog(noting)
    accepted = await catalog.accept_import(import_of(upload("a")))
    revoked = await careful.revoke("acme", RevocationKind.USER, "ann", "left", "admin")
    await careful.lift("acme", revoked.revocation_id)
    await careful.delete_document("acme", accepted.documents[0].document_id)
    with pytest.raises(NotFound):
        await careful.activate("acme", "no such release", None)
    with pytest.raises(ReleaseConflict):
        await careful.roll_back("acme", "handbook")
    assert noting.durable == [True] * 5
    await careful.append(record(1))
    assert noting.durable[-1] is False
    await noting.aclose()


async def test_text_that_cannot_be_stored_is_the_callers_error(catalog: SqlCatalog) -> None:
    """Half of a surrogate pair and numbers beyond 64 bits are refused, by reads and writes alike."""
    with pytest.raises(InvalidField):
        await catalog.documents("acme", "\ud800")
    with pytest.raises(InvalidField):
        await catalog.accept_import(import_of(upload("\udfff")))
    with pytest.raises(InvalidField):
        await catalog.accept_import(import_of(upload("a", valid_until=2**63)))
    assert (await catalog.tenant_stamp("acme")).knowledge_bases == ()


async def test_errors_carry_no_values(database: SqliteDatabase) -> None:
    """A driver's error may end in a log; what was written must not."""
    with pytest.raises(CatalogUnavailable) as caught:
        await database.write(
            lambda c, now: c.execute(
                text("INSERT INTO meta VALUES (:key, :value)"), {"key": None, "value": "secret"}
            )
        )
    assert "secret" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_second_process_is_refused(path: Path, catalog: SqlCatalog) -> None:
    """While the first is open, also from within the same process; afterwards it may open."""
    with pytest.raises(ConfigurationError) as refused:
        async with open_catalog(path):
            pass
    assert refused.value.reason == "data_dir_in_use"
    child = "import sys; from tests.integration.sql_child import main; main(sys.argv[1], 'open')"
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", child, str(path)], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout.split()) == (3, ["data_dir_in_use"]), ended.stderr
    await catalog.ping()


async def test_a_closed_catalog_can_be_opened_again(path: Path) -> None:
    """With everything in it, the incarnation too; the closed one says that it is closed."""
    async with open_catalog(path) as first:
        await first.append(record(1))
        stamp = await first.tenant_stamp("acme")
    with pytest.raises(CatalogUnavailable):
        await first.ping()
    async with open_catalog(path) as second:
        assert await second.entries("acme", 10) == [record(1)]
        assert await second.tenant_stamp("acme") == stamp


async def test_the_files_belong_to_their_owner_alone(path: Path, catalog: SqlCatalog) -> None:
    """Database, write-ahead log, shared memory and lock, whatever the process's umask."""
    await catalog.append(record(1))
    modes = {file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir()}
    names = {path.name + suffix for suffix in ("", "-wal", "-shm", ".lock")}
    assert modes == dict.fromkeys(names, "0o600")


async def test_a_file_that_was_open_to_others_is_closed_to_them(path: Path) -> None:
    """An older file's mode is corrected."""
    await anyio.Path(path).touch(mode=0o644)
    async with open_catalog(path):
        assert (await anyio.Path(path).stat()).st_mode & 0o777 == 0o600


async def test_a_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    """Not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError) as refused:
        async with open_catalog(tmp_path / "file" / "catalog.sqlite3"):
            pass
    assert refused.value.reason == "data_dir_unusable"


async def test_a_file_that_is_no_database_is_a_catalog_error(path: Path) -> None:
    """And it is left as it was."""
    await anyio.Path(path).write_bytes(b"not a database" * 1000)
    with pytest.raises(CatalogUnavailable):
        async with open_catalog(path):
            pass
    assert await anyio.Path(path).read_bytes() == b"not a database" * 1000


@pytest.mark.parametrize("moment", ["half", "loop"])
async def test_a_killed_process_leaves_whole_transactions(path: Path, moment: str) -> None:
    """kill -9 inside an open transaction, and while importing as fast as it can."""
    child = "import sys; from tests.integration.sql_child import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", child, str(path), moment]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with anyio.fail_after(60):
        lines = [await process.stdout.readline() for _ in range(1 if moment == "half" else 20)]
        process.kill()
        lines += (await process.stdout.read()).splitlines()
        await process.wait()
    assert {line.strip() for line in lines} == {b"inside" if moment == "half" else b"imported"}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    async with open_catalog(path) as reopened:
        listed = await reopened.documents("acme", "handbook")
        if moment == "half":
            assert listed == []
            return
        assert len(listed) % 10 == 0
        assert len(listed) >= 10 * len(lines)
        claim = await reopened.claim("worker", 30, 5)
        assert claim is not None
        assert len(await reopened.unfinished_versions(claim)) == 10
        await reopened.finish(claim, Ending(TaskState.CANCELLED))


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE_NAMES if len(name) < 100], ids=lambda name: ascii(name[:12])
)
async def test_hostile_paths_are_only_paths(tmp_path: Path, name: str) -> None:
    """Nothing in a folder's name reaches a URL, a query string or a format."""
    path = tmp_path / name.replace("/", "_") / "catalog.sqlite3"
    async with open_catalog(path) as opened:
        await opened.revoke("acme", RevocationKind.USER, "ann", "left", "admin")
    assert path.stat().st_size > 0
    async with open_catalog(path) as again:
        assert len(await again.list_revocations("acme")) == 1
