"""What only an operator does to PostgreSQL: migrating it, and letting the runtime account in."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import URL, Connection, NullPool, func, select, text

from gateway.adapters.sql.postgres_engine import engine_of, postgres_url
from gateway.adapters.sql.postgres_errors import translated_errors
from gateway.adapters.sql.tables import metadata
from gateway.errors import ConfigurationError

T = TypeVar("T")

#: any number that nobody else's program locks by in our database
_LOCK = 0x71612D67
_CONNECT_S = 10.0
#: a migration that waits longer for a table would make every request behind it wait as well
_SETTINGS = {"lock_timeout": "60s"}
_VERSION_TABLE = "alembic_version"
_ALL_ROWS = "SELECT, INSERT, UPDATE, DELETE"
#: what is only ever added to, and what only migrations write
_RIGHTS = {"audit": "SELECT, INSERT", "task_steps": "SELECT, INSERT", _VERSION_TABLE: "SELECT"}
_SEQUENCES = text(
    "SELECT s.relname FROM pg_class s JOIN pg_depend d ON d.objid = s.oid AND d.deptype IN ('a', 'i') "
    "JOIN pg_class t ON t.oid = d.refobjid "
    "WHERE s.relkind = 'S' AND t.relnamespace = current_schema()::regnamespace AND t.relname = ANY(:tables)"
)
_IS_ROLE = text("SELECT 1 FROM pg_roles WHERE rolname = :name")


def run(url: URL, work: Callable[[Connection], T]) -> T:
    """``work`` as one transaction. Blocks; a loop may be running in the calling thread.

    Raises CatalogUnavailable, or what ``work`` raises; then nothing is written.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="postgres-admin") as thread:
        return thread.submit(lambda: asyncio.run(_run(url, work))).result()


async def _run(url: URL, work: Callable[[Connection], T]) -> T:
    engine = engine_of(url, _SETTINGS, connect_s=_CONNECT_S, poolclass=NullPool)
    with translated_errors():
        async with engine.begin() as connection:
            return await connection.run_sync(work)


def grant_runtime(url: str, account: str) -> None:
    """Gives ``account`` what a running gateway needs of our tables and nothing else: rows, of the audit trail
    only new ones, and the sequences that number them. Others' tables in the schema stay as they are.

    Run it again after each migration. Blocks. Raises ConfigurationError (``account_unknown``,
    ``database_url_invalid``), CatalogUnavailable.
    """
    run(postgres_url(url), lambda connection: _grant(connection, account))


def in_turn(connection: Connection) -> None:
    """Waits until nobody else changes the schema or its grants; holds until the transaction ends."""
    connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _grant(connection: Connection, account: str) -> None:
    in_turn(connection)
    if connection.execute(_IS_ROLE, {"name": account}).one_or_none() is None:
        raise ConfigurationError("account_unknown", "the database has no such account; create it first")
    quoted = connection.dialect.identifier_preparer.quote_identifier
    schema = quoted(str(connection.execute(select(func.current_schema())).scalar_one()))
    role = quoted(account)
    connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    for table in (*metadata.tables, _VERSION_TABLE):
        place = f"{schema}.{quoted(table)}"
        connection.exec_driver_sql(f"REVOKE ALL ON TABLE {place} FROM {role}")
        connection.exec_driver_sql(f"GRANT {_RIGHTS.get(table, _ALL_ROWS)} ON TABLE {place} TO {role}")
    for sequence in connection.execute(_SEQUENCES, {"tables": list(metadata.tables)}).scalars():
        connection.exec_driver_sql(f"GRANT USAGE ON SEQUENCE {schema}.{quoted(sequence)} TO {role}")
