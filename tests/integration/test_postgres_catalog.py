"""The PostgreSQL catalog against a server that restarts, hangs, cuts connections and is too busy."""

import asyncio
import random
import traceback
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING

import anyio
import asyncpg
import pytest
from sqlalchemy import Connection, text

from gateway.adapters.sql.catalog import SqlCatalog, open_postgres
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.errors import CatalogUnavailable, ConfigurationError, InvalidField
from gateway.observe.audit import AuditRecord
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import import_of, upload

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

#: short, for what must fail; the tests allow a busy machine much longer
_CAP_S = 0.5
_INSERT = text("INSERT INTO meta VALUES (:key, '')")


@pytest.fixture
def url(postgres: "PostgresServer") -> str:
    """A new database with the newest schema."""
    return postgres.migrated()


@pytest.fixture
async def catalog(url: str) -> AsyncIterator[SqlCatalog]:
    """One that waits long enough for a busy machine."""
    async with open_postgres(url, connections=4, cap_s=10) as opened:
        yield opened


@pytest.fixture
async def hasty(url: str) -> AsyncIterator[SqlCatalog]:
    """One that soon gives up, with one connection for requests and one for work."""
    async with open_postgres(url, connections=2, cap_s=10) as first:
        await first.ping()  # the incarnation is kept without haste
    async with open_postgres(url, connections=2, cap_s=_CAP_S) as opened:
        yield opened


@pytest.fixture
async def database(url: str, catalog: SqlCatalog) -> AsyncIterator[PostgresDatabase]:
    """A second door to the catalog's database."""
    opened = PostgresDatabase(postgres_url(url), connections=4, cap_s=10)
    yield opened
    await opened.aclose()


def record(number: int) -> AuditRecord:
    return AuditRecord(float(number), "acme", "ann", "asked", f"request-{number}", {"number": number})


def insert(*keys: str, connection: Connection, now: float) -> None:
    for key in keys:
        connection.execute(_INSERT, {"key": key})


async def keys_of(database: PostgresDatabase) -> set[str]:
    return set(await database.read(lambda c: c.execute(text("SELECT key FROM meta")).scalars().all()))


async def test_cancels_inside_transactions_leave_the_database_usable(database: PostgresDatabase) -> None:
    """300 tasks are cancelled at random points while others work: each is written whole or not at all."""
    chance = random.Random(7)
    written = []

    async def others() -> None:
        number = 0
        while True:
            await database.write(lambda c, now, key=f"other-{number}": insert(key, connection=c, now=now))  # type: ignore[misc] # a default in a lambda
            written.append(f"other-{number}")
            number += 1

    other = asyncio.ensure_future(others())
    for number in range(300):
        halves = (f"{number}-first", f"{number}-second")
        writing = asyncio.ensure_future(
            database.write(lambda c, now, halves=halves: insert(*halves, connection=c, now=now))  # type: ignore[misc] # likewise
        )
        asking = asyncio.ensure_future(database.read(lambda c: c.execute(text("SELECT 1")).all()))
        with anyio.move_on_after(chance.uniform(0, 0.01)):
            await asyncio.wait({writing})
        writing.cancel()
        asking.cancel()
        await asyncio.gather(writing, asking, return_exceptions=True)
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    with anyio.fail_after(60):
        every = [database.write(partial(_pid)) for _ in range(20)]
        await asyncio.gather(*every)
        await asyncio.gather(*(keys_of(database) for _ in range(20)))
        found = await keys_of(database)
    for number in range(300):
        assert (f"{number}-first" in found) == (f"{number}-second" in found)
    assert set(written) <= found
    assert await database.read(_open_transactions) == 0


def _pid(connection: Connection, now: float) -> int:
    return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())


def _open_transactions(connection: Connection) -> int:
    idle = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
    )
    return int(connection.execute(idle).scalar_one())


async def test_a_restart_in_mid_request_loses_nothing_that_was_confirmed(
    postgres: "PostgresServer", catalog: SqlCatalog
) -> None:
    """Calls answer or fail as unavailable; afterwards everything works without opening it again."""
    confirmed: list[AuditRecord] = []
    failures: list[BaseException] = []

    async def write(start: int) -> None:
        for number in range(start, start + 40):
            try:
                await catalog.append(record(number))
                confirmed.append(record(number))
                await catalog.tenant_stamp("acme")
            except CatalogUnavailable as error:
                failures.append(error)

    with anyio.fail_after(120):
        async with anyio.create_task_group() as group:
            for start in range(0, 160, 40):
                group.start_soon(write, start)
            await asyncio.to_thread(postgres.restart)
        await catalog.append(record(1000))
        kept = await catalog.entries("acme", 1000)
    assert {entry.request_id for entry in [*confirmed, record(1000)]} <= {entry.request_id for entry in kept}
    assert len(kept) == len({entry.request_id for entry in kept})


async def test_killed_connections_are_replaced_unnoticed(
    postgres: "PostgresServer", catalog: SqlCatalog
) -> None:
    """The whole pool dies while nobody uses it."""
    for number in range(3):
        await asyncio.gather(*(catalog.documents("acme", "handbook") for _ in range(8)))
        await asyncio.to_thread(postgres.terminate_backends)
        await asyncio.gather(*(catalog.tenant_stamp(f"tenant-{n}") for n in range(8)))
        await catalog.append(record(number))
        assert await catalog.entries("acme", 1) == [record(number)]


async def test_a_write_whose_connection_dies_before_the_commit_is_run_again(
    database: PostgresDatabase,
) -> None:
    """Nothing of the first run can have been kept."""
    runs = []

    def work(connection: Connection, now: float) -> None:
        runs.append(now)
        insert("once", connection=connection, now=now)
        if len(runs) == 1:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    await database.write(work)
    assert len(runs) == 2
    assert "once" in await keys_of(database)


async def test_a_write_whose_connection_dies_in_the_commit_is_not_run_again(
    postgres: "PostgresServer",
) -> None:
    """It may have been kept, and twice is worse than an error."""
    url = postgres.migrated()
    postgres.sql(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;"
        "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON audit DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die()",
        url.rpartition("/")[2],
    )
    database = PostgresDatabase(postgres_url(url), connections=2, cap_s=10)
    runs = []

    def work(connection: Connection, now: float) -> None:
        runs.append(now)
        connection.execute(text("INSERT INTO audit VALUES (1, 0, '', '', '', '', '')"))

    with pytest.raises(CatalogUnavailable):
        await database.write(work)
    assert len(runs) == 1
    await database.write(_pid)
    await database.aclose()


async def test_a_server_that_hangs_is_unavailable_and_outlived(
    postgres: "PostgresServer", hasty: SqlCatalog
) -> None:
    """Reads, shared reads, listings and writes all give up; when it goes on, so do they."""
    postgres.pause()
    try:
        with anyio.fail_after(30):
            answers = await asyncio.gather(
                hasty.tenant_stamp("acme"),
                hasty.tenant_stamp("other"),
                hasty.task("acme", "none"),
                hasty.documents("acme", "handbook"),
                hasty.append(record(1)),
                hasty.ping(),
                return_exceptions=True,
            )
    finally:
        postgres.resume()
    assert [type(answer) for answer in answers] == [CatalogUnavailable] * 6
    with anyio.fail_after(60):
        while not await _answers(hasty):
            pass
        await hasty.append(record(2))
    assert await hasty.entries("acme", 10) == [record(2)]  # what nobody waited for didn't happen


async def _answers(catalog: SqlCatalog) -> bool:
    try:
        await catalog.tenant_stamp("acme")
        await catalog.documents("acme", "handbook")
    except CatalogUnavailable:
        return False
    return True


async def test_a_server_that_is_gone_is_unavailable_until_it_is_back(
    postgres: "PostgresServer", catalog: SqlCatalog
) -> None:
    """Refused connections are no different from broken ones."""
    await catalog.append(record(1))
    await asyncio.to_thread(postgres.stop)
    try:
        for _ in range(3):
            with pytest.raises(CatalogUnavailable):
                await catalog.tenant_stamp("acme")
            with pytest.raises(CatalogUnavailable):
                await catalog.append(record(2))
    finally:
        await asyncio.to_thread(postgres.start)
    await catalog.append(record(3))
    assert await catalog.entries("acme", 10) == [record(3), record(1)]


async def test_when_every_connection_is_in_use_the_next_call_fails_in_time(
    url: str, hasty: SqlCatalog
) -> None:
    """A table locked by somebody else: one write waits for it, the other for a connection; reads go on."""
    foreign = await asyncpg.connect(postgres_url(url).set(drivername="postgresql").render_as_string(False))
    try:
        lock = foreign.transaction()
        await lock.start()
        await foreign.execute("LOCK TABLE audit")
        writing = {asyncio.ensure_future(hasty.append(record(number))) for number in range(2)}
        with anyio.fail_after(30):
            failed, waiting = await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
        assert [type(write.exception()) for write in failed] == [CatalogUnavailable]
        await hasty.tenant_stamp("acme")
        await lock.rollback()
        with anyio.fail_after(30):
            await asyncio.gather(*waiting)
        assert len(await hasty.entries("acme", 10)) == 1
    finally:
        await foreign.close()


async def test_text_that_cannot_be_stored_is_the_callers_error(catalog: SqlCatalog) -> None:
    """NUL, half of a surrogate pair and numbers beyond 64 bits, by reads and writes alike."""
    for broken in ("\ud800", "a\0b"):
        with pytest.raises(InvalidField):
            await catalog.documents("acme", broken)
        with pytest.raises(InvalidField):
            await catalog.tenant_stamp(broken)
        with pytest.raises(InvalidField):
            await catalog.accept_import(import_of(upload(broken)))
    with pytest.raises(InvalidField):
        await catalog.accept_import(import_of(upload("a", valid_until=2**63)))
    assert (await catalog.tenant_stamp("acme")).knowledge_bases == ()


async def test_one_callers_broken_text_fails_nobody_else(catalog: SqlCatalog) -> None:
    """Though they share a statement."""
    answers = await asyncio.gather(
        *(catalog.tenant_stamp(tenant) for tenant in ("acme", "\0", "other")), return_exceptions=True
    )
    assert [isinstance(answer, InvalidField) for answer in answers] == [False, True, False]


async def test_errors_tell_neither_values_nor_passwords(
    postgres: "PostgresServer", database: PostgresDatabase, catalog: SqlCatalog
) -> None:
    """A traceback with all its causes may end in a log."""
    with pytest.raises(CatalogUnavailable) as broken:
        await database.write(
            lambda c, now: c.execute(
                text("INSERT INTO meta VALUES (:key, :value)"), {"key": None, "value": "secret"}
            )
        )
    with pytest.raises(CatalogUnavailable) as refused:
        async with open_postgres(postgres.url_of("no_such_database"), connections=2, cap_s=10):
            pass
    for error in (broken.value, refused.value):
        told = "".join(traceback.format_exception(error))
        assert "secret" not in told.replace("values and secrets", "")
        assert "a-password" not in told
    assert "a-password" not in repr([vars(database), vars(catalog), repr(database)])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://ann:hidden@host/db",
        "postgresql://ann:hidden@host:port/db",
        "postgresql+psycopg://hidden@h/d",
    ],
)
async def test_a_url_that_is_none_is_a_configuration_error(url: str) -> None:
    """And isn't repeated: it may hold a password."""
    with pytest.raises(ConfigurationError) as refused:
        async with open_postgres(url, connections=2, cap_s=10):
            pass
    assert refused.value.reason == "database_url_invalid"
    assert "hidden" not in "".join(traceback.format_exception(refused.value)).split("Traceback")[-1][-400:]


async def test_times_are_the_databases(catalog: SqlCatalog, database: PostgresDatabase) -> None:
    """Leases and records of several machines go by one clock."""
    before = await database.look(lambda c: float(c.execute(_CLOCK).scalar_one()))
    revoked = await catalog.revoke("acme", RevocationKind.USER, "ann", "left", "admin")
    after = await database.look(lambda c: float(c.execute(_CLOCK).scalar_one()))
    assert before <= revoked.created_at <= after
    assert abs(await catalog.clock_skew_s()) < 60
    assert (await catalog.server_version()).startswith("PostgreSQL ")


_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())")


async def test_every_commit_waits_for_the_disk(url: str, database: PostgresDatabase) -> None:
    """Whatever the server's own default is."""
    name = url.rpartition("/")[2]
    await database.write(
        lambda c, now: c.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    )
    async with open_postgres(url, connections=2, cap_s=10):
        pass
    other = PostgresDatabase(postgres_url(url), connections=2, cap_s=10)
    shown = await other.write(lambda c, now: c.execute(text("SHOW synchronous_commit")).scalar_one())
    await other.aclose()
    await database.write(lambda c, now: c.execute(text(f"ALTER DATABASE {name} RESET synchronous_commit")))
    assert shown == "on"


async def test_a_closed_catalog_says_so(url: str) -> None:
    """And leaves no connection behind."""
    async with open_postgres(url, connections=2, cap_s=10) as opened:
        await opened.ping()
    with pytest.raises(CatalogUnavailable):
        await opened.ping()
    with pytest.raises(CatalogUnavailable):
        await opened.tenant_stamp("acme")
