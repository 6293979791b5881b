"""One database for many tests: emptied, which is cheaper than a new one or another start."""

import contextlib
from collections.abc import AsyncIterator

from sqlalchemy import Connection

from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.tables import meta, metadata

#: the rows a fresh catalog doesn't have: all but its incarnation
_FILLED = [table.name for table in reversed(metadata.sorted_tables) if table is not meta]
#: one round trip
_EMPTY = "DO $$ BEGIN {} END $$".format(" ".join(f"DELETE FROM {table};" for table in _FILLED))


def _empty(connection: Connection, now: float) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(_EMPTY)
        return
    for table in _FILLED:
        connection.exec_driver_sql(f"DELETE FROM {table}")


@contextlib.asynccontextmanager
async def emptied(database: Database) -> AsyncIterator[SqlCatalog]:
    """The catalog in it, without what tests have left there."""
    await database.write(_empty)
    yield SqlCatalog(database)
