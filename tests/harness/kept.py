"""What a catalog keeps, whichever it is: for tests that hold a request to having changed nothing."""

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, select

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.tables import audit, metadata


async def kept(catalog: MemoryCatalog | SqlCatalog) -> list[str]:
    """Every row of every tenant but the audit trail's."""
    if isinstance(catalog, MemoryCatalog):
        return [repr((name, value)) for name, value in vars(catalog).items() if name != "_audit"]
    return await _rows(catalog, [select(table) for table in metadata.sorted_tables if table is not audit])


async def kept_of(catalog: MemoryCatalog | SqlCatalog, tenant: str) -> list[str]:
    """Every row of the tenant but its audit trail, and its revocation epoch."""
    if isinstance(catalog, MemoryCatalog):
        tables = [table for table in vars(catalog).values() if isinstance(table, dict)]
        rows = [repr(row) for table in tables for row in table.values()]
        owned = [row for row in rows if f"tenant='{tenant}'" in row]
        return [*owned, repr(vars(catalog)["_epochs"].get(tenant, 0))]
    return await _rows(catalog, [owned for t in metadata.sorted_tables for owned in _owned(t, tenant)])


async def _rows(catalog: SqlCatalog, statements: Iterable[Select[Any]]) -> list[str]:
    def read(connection: Connection) -> list[str]:
        return sorted(repr(row) for statement in statements for row in connection.execute(statement))

    found: list[str] = await vars(catalog)["_database"].browse(read)
    return found


def _owned(table: Table, tenant: str) -> Iterator[Select[Any]]:
    """The rows that name the tenant, or else those that point at a row that does."""
    if table is audit:
        return
    if "tenant" in table.c:
        yield select(table).where(table.c.tenant == tenant)
        return
    for key in table.foreign_keys:
        target: Column[Any] = key.column
        if "tenant" in target.table.c:
            pointed_at = select(target).where(target.table.c.tenant == tenant)
            yield select(table).where(key.parent.in_(pointed_at))
