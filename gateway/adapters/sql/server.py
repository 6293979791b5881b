"""The database server itself: its version, its clock, and what our account could do to it."""

import sqlite3
import time

from sqlalchemy import Connection, Double, func, select, text

from gateway.adapters.sql.tables import metadata

_POSTGRES_NOW = select(func.extract("epoch", func.clock_timestamp()).cast(Double))
_POSTGRES_VERSION = select(func.current_setting("server_version"))

# Also what SET ROLE would give: a member may become each of its roles.
_ROLE = text(
    "SELECT bool_or(rolsuper), bool_or(rolcreaterole OR rolcreatedb) FROM pg_roles "
    "WHERE pg_has_role(oid, 'MEMBER')"
)
_MAY_CREATE = text(
    "SELECT bool_or(has_database_privilege(oid, current_database(), 'CREATE')), "
    "bool_or(has_schema_privilege(oid, current_schema(), 'CREATE')) FROM pg_roles "
    "WHERE pg_has_role(oid, 'MEMBER')"
)
_OWNED = text(
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
    "AND relname = ANY(:tables) AND pg_has_role(relowner, 'MEMBER') ORDER BY relname"
)


def is_postgres(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def database_time(connection: Connection) -> float:
    """The database's clock at this moment, seconds since the epoch."""
    if is_postgres(connection):
        return float(connection.execute(_POSTGRES_NOW).scalar_one())
    return time.time()  # SQLite has the clock of this machine


def version(connection: Connection) -> str:
    """As the database says it: ``PostgreSQL 15.6 (Debian …)``."""
    if is_postgres(connection):
        return f"PostgreSQL {connection.execute(_POSTGRES_VERSION).scalar_one()}"
    return f"SQLite {sqlite3.sqlite_version}"


def excess_privileges(connection: Connection) -> list[str]:
    """What our account could do and must not in production, in words; empty: it is fit for it.

    It needs rows only: whoever can change tables can switch off what protects them.
    """
    if not is_postgres(connection):
        return []
    superuser, creates_roles = connection.execute(_ROLE).one()
    if superuser:
        return ["it is a superuser, or may become one"]
    in_database, in_schema = connection.execute(_MAY_CREATE).one()
    found = {
        "it may create roles or databases": creates_roles,
        "it may create schemas in the database": in_database,
        "it may create tables in the schema": in_schema,
    }
    names = [*metadata.tables, "alembic_version"]
    owned = connection.execute(_OWNED, {"tables": names}).scalars()
    return [*(what for what, can in found.items() if can), *(f"it owns the table {name}" for name in owned)]
