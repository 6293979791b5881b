"""SqlCatalog: every catalog port over one database, in transactions that are short each."""

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
from sqlalchemy import URL, Connection

from gateway.adapters.sql import (
    access,
    restoring,
    server,
)
from gateway.adapters.sql.catalog_access import SqlAccess
from gateway.adapters.sql.catalog_governance import SqlGovernance
from gateway.adapters.sql.catalog_releases import SqlReleases
from gateway.adapters.sql.catalog_remains import SqlRemains
from gateway.adapters.sql.catalog_tasks import SqlTasks
from gateway.adapters.sql.catalog_traces import SqlTraces
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.lock import exclusively, private_file
from gateway.adapters.sql.migrations import check_schema, migrate
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.rows import fresh_id, insert_missing
from gateway.adapters.sql.sqlite import SqliteDatabase, has_wal_reset_bug
from gateway.adapters.sql.tables import meta
from gateway.observe.logging import get_logger


@contextlib.asynccontextmanager
async def open_catalog(path: Path, *, clock: Callable[[], float] = time.time) -> AsyncIterator["SqlCatalog"]:
    """The catalog in a SQLite file that only this process may open; made and migrated as needed.

    ``clock`` gives seconds since the epoch. Raises ConfigurationError (``data_dir_in_use``,
    ``data_dir_unusable``), CatalogUnavailable.
    """
    with exclusively(path):
        await anyio.to_thread.run_sync(_prepare, path)
        database = SqliteDatabase(path, clock)
        try:
            await database.write(_keep_incarnation)
            yield SqlCatalog(database)
        finally:
            await database.aclose()


def _prepare(path: Path) -> None:
    os.close(private_file(path))
    if has_wal_reset_bug():
        get_logger("catalog").info("catalog.sqlite_has_wal_reset_bug", version=sqlite3.sqlite_version)
    migrate(URL.create("sqlite", database=str(path)))


@contextlib.asynccontextmanager
async def open_postgres(
    url: str, *, connections: int, cap_s: float, clock: Callable[[], float] | None = None
) -> AsyncIterator["SqlCatalog"]:
    """The catalog in a PostgreSQL database that others use as well; never migrates it.

    At most ``connections`` (2 or more) are open at once. A request's reads answer or fail within
    ``cap_s``; a write or a listing fails within ``cap_s`` when the server says nothing. ``clock``
    gives seconds since the epoch; None is the server's. Raises ConfigurationError
    (``schema_not_migrated``, ``schema_unknown``, ``database_url_invalid``), CatalogUnavailable.
    """
    database = PostgresDatabase(postgres_url(url), connections=connections, cap_s=cap_s, clock=clock)
    try:
        await database.browse(check_schema)
        await database.write(_keep_incarnation)
        yield SqlCatalog(database)
    finally:
        await database.aclose()


def _keep_incarnation(connection: Connection, now: float) -> None:
    insert_missing(connection, meta, [{"key": access.INCARNATION, "value": fresh_id("inc")}])


class SqlCatalog(SqlAccess, SqlTasks, SqlReleases, SqlGovernance, SqlRemains, SqlTraces):
    """Every port of the catalog; their docstrings are the contract."""

    @property
    def database(self) -> Database:
        """For what only an operator does with it."""
        return self._database

    async def ping(self) -> None:
        """Raises CatalogUnavailable when the database can't be read, RestoreUnconfirmed."""
        await self._look(restoring.check_confirmed)

    async def is_confirmed(self) -> bool:
        """False while the catalog comes from a backup and waits for an operator's word."""
        return await self._look(restoring.is_confirmed)

    async def server_version(self) -> str:
        """``PostgreSQL 15.6 (Debian …)``, ``SQLite 3.40.1``."""
        return await self._look(server.version)

    async def clock_skew_s(self) -> float:
        """How far the database's clock is ahead of this machine's."""
        before = time.time()
        there = await self._look(server.database_time)
        return there - (before + time.time()) / 2

    async def excess_privileges(self) -> list[str]:
        """What our account in the database could do and must not in production; empty: it is fit for it."""
        return await self._read(server.excess_privileges)
