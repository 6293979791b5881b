"""One PostgreSQL database for many tests: emptied, which is cheaper than a new one or another start."""

import contextlib
from collections.abc import AsyncIterator, Callable

from sqlalchemy import Connection

from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.postgres import PostgresDatabase
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.tables import meta, metadata

#: the rows a fresh catalog doesn't have: all but its incarnation
_FILLED = [table.name for table in reversed(metadata.sorted_tables) if table is not meta]
_EMPTY = "DO $$ BEGIN {} END $$".format(" ".join(f"DELETE FROM {table};" for table in _FILLED))


def _empty(connection: Connection, now: float) -> None:
    connection.exec_driver_sql(_EMPTY)


@contextlib.asynccontextmanager
async def empty_catalog(url: str, clock: Callable[[], float] | None = None) -> AsyncIterator[SqlCatalog]:
    """The catalog at ``url``, once opened by ``open_postgres``, without what tests have left in it."""
    database = PostgresDatabase(postgres_url(url), connections=2, cap_s=10, clock=clock)
    try:
        await database.write(_empty)
        yield SqlCatalog(database)
    finally:
        await database.aclose()
