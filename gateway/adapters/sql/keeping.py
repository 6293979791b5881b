"""The catalog as an operator keeps it: dumped beside whoever uses it, loaded whole, compared."""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from anyio import to_thread
from sqlalchemy import URL, Connection, NullPool, create_engine, event

from gateway.adapters.sql import counting, dump, journal, postgres_admin, reclaim, restoring, retained
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.lock import exclusively, private_file
from gateway.adapters.sql.migrations import check_schema, migrate
from gateway.adapters.sql.postgres_engine import engine_of, postgres_url
from gateway.adapters.sql.postgres_errors import translated_errors as postgres_errors
from gateway.adapters.sql.sqlite import translated_errors, writing_engine
from gateway.errors import ConfigurationError
from gateway.ingest.journal import JournalEntry
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.keeping.catalog import CatalogDump, RetainedRelease
from gateway.release.model import EmbeddingSpace

T = TypeVar("T")

_CONNECT_S = 10.0
_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class SqliteFile:
    """A SQLite catalog by its path; DumpedCatalog while another process serves it, EmptyCatalog before.

    A dump reads through a connection that can't write and so never checkpoints: the serving process stays
    the only one that does, as SQLite before 3.51.3 needs it. Its log grows until the dump is over.
    """

    tables = dump.TABLE_NAMES

    def __init__(self, path: Path) -> None:
        self._path = path

    async def dump(self, folder: Path) -> CatalogDump:
        return await self._snapshot(lambda connection: dump.write(connection, folder))

    async def needed_objects(self) -> frozenset[str]:
        return await self._snapshot(dump.needed_objects)

    async def load(self, folder: Path, dumped: CatalogDump, note: Mapping[str, str]) -> None:
        """Raises also ConfigurationError ``data_dir_in_use``: nobody may serve from it."""
        await to_thread.run_sync(self._load, folder, dumped, note)

    async def _snapshot(self, work: Callable[[Connection], T]) -> T:
        return await to_thread.run_sync(self._read, work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        if not self._path.is_file():
            raise ConfigurationError("catalog_not_found", "there is no catalog in this data folder")
        with translated_errors(), _reading(self._path) as connection:
            check_schema(connection)
            return work(connection)

    def _load(self, folder: Path, dumped: CatalogDump, note: Mapping[str, str]) -> None:
        with exclusively(self._path):
            os.close(private_file(self._path))
            migrate(URL.create("sqlite", database=str(self._path)))
            engine = writing_engine(self._path)
            try:
                with translated_errors(), engine.connect() as connection:
                    durable = connection.execution_options(durable=True)
                    with durable.begin():
                        dump.load(durable, folder, dumped, note)
            finally:
                engine.dispose()


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[Connection]:
    """One snapshot, through a connection that was opened for reading alone."""

    def connect() -> sqlite3.Connection:
        opened = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        for pragma in ("query_only = ON", "mmap_size = 0", "trusted_schema = OFF"):
            opened.execute(f"PRAGMA {pragma}")
        return opened

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.connect() as connection, connection.begin():
        yield connection


class PostgresServer:
    """A PostgreSQL catalog by its URL. A load needs the owner's account, a dump only rows."""

    tables = dump.TABLE_NAMES

    def __init__(self, url: str) -> None:
        """Raises ConfigurationError ``database_url_invalid``."""
        self._url = postgres_url(url)

    async def dump(self, folder: Path) -> CatalogDump:
        return await self._snapshot(lambda connection: dump.write(connection, folder))

    async def needed_objects(self) -> frozenset[str]:
        return await self._snapshot(dump.needed_objects)

    async def load(self, folder: Path, dumped: CatalogDump, note: Mapping[str, str]) -> None:
        def work(connection: Connection) -> None:
            check_schema(connection)
            postgres_admin.in_turn(connection)
            dump.load(connection, folder, dumped, note)

        await to_thread.run_sync(postgres_admin.run, self._url, work)

    async def _snapshot(self, work: Callable[[Connection], T]) -> T:
        return await to_thread.run_sync(lambda: asyncio.run(self._read(work)))

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def checked(connection: Connection) -> T:
            check_schema(connection)
            return work(connection)

        engine = engine_of(
            self._url, {}, connect_s=_CONNECT_S, poolclass=NullPool, execution_options=_SNAPSHOT
        )
        with postgres_errors():
            async with engine.connect() as connection, connection.begin():
                return await connection.run_sync(checked)


class SqlKeeping:
    """RestoredCatalog and KeptCatalog over an open database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self) -> Mapping[str, str]:
        return await self._database.browse(restoring.note)

    async def unsent(self, incarnation: str) -> list[JournalEntry]:
        return await self._database.browse(lambda c: journal.unsent(c, incarnation))

    async def sent(self, entries: Sequence[JournalEntry]) -> None:
        await self._database.write(lambda c, now: journal.sent(c, now, entries), durable=True)

    async def replay(self, entry: JournalEntry) -> bool:
        return await self._database.write(lambda c, now: journal.replay(c, now, entry), durable=True)

    async def give_up(self, release_id: str) -> None:
        revision = await self._database.write(
            lambda c, now: reclaim.give_up(c, now, release_id), durable=True
        )
        await counting.drop(self._database, revision)

    async def finish(self) -> None:
        await self._database.write(lambda c, now: restoring.finish(c, now), durable=True)

    async def confirm(self) -> bool:
        return await self._database.write(lambda c, now: restoring.confirm(c, now), durable=True)

    async def versions(self, after: str, limit: int) -> Sequence[PlannedDocument]:
        return await self._database.browse(lambda c: retained.versions(c, after, limit))

    async def retained(self) -> Sequence[RetainedRelease]:
        return await self._database.browse(retained.releases_of_all)

    async def spaces(self) -> Sequence[EmbeddingSpace]:
        return await self._database.browse(retained.spaces)

    async def unfinished_revisions(self) -> frozenset[str]:
        return await self._database.browse(retained.unfinished)

    async def plan(self, release_id: str) -> ReleasePlan:
        return await self._database.browse(lambda c: retained.plan(c, release_id))

    async def journal_lag_s(self) -> float:
        return await self._database.browse(journal.lag_s)
