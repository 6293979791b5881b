"""Dumps: every table as lines of JSON, read in one snapshot, and the same lines back into empty tables."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Subquery,
    Table,
    and_,
    delete,
    func,
    insert,
    select,
    text,
    update,
)

from gateway.adapters.sql import journal, restoring, retained
from gateway.adapters.sql.access import INCARNATION
from gateway.adapters.sql.migrations import schema_of
from gateway.adapters.sql.server import database_time, is_postgres
from gateway.adapters.sql.tables import (
    document_versions,
    manifest,
    meta,
    metadata,
    order_replies,
    orders,
    vector_places,
)
from gateway.adapters.sql.trace_tables import trace_passages, traces, turn_documents, turns
from gateway.errors import BackupDamaged, ConfigurationError
from gateway.keeping.catalog import SETTLED_S, CatalogDump

#: about processes that ran then, and what people asked: a backup holds no questions
_PASSING = {orders.name, order_replies.name, traces.name, trace_passages.name}
_PASSING |= {turns.name, turn_documents.name}
_TABLES = [table for table in metadata.sorted_tables if table.name not in _PASSING]
_BATCH = 500
TABLE_NAMES = frozenset(table.name for table in _TABLES)


def write(connection: Connection, folder: Path) -> CatalogDump:
    """A file ``<table>.jsonl`` for each table. The connection must see one snapshot all the time."""
    taken_at = database_time(connection)
    return CatalogDump(
        schema=schema_of(connection),
        incarnation=_incarnation(connection),
        taken_at=taken_at,
        rows={table.name: _write_table(connection, table, folder) for table in _TABLES},
        objects=wanted_objects(connection),
        needed=needed_objects(connection),
        journaled=journal.sent_since(connection, taken_at - SETTLED_S),
    )


def _incarnation(connection: Connection) -> str:
    """Raises ConfigurationError ``restore_unconfirmed``."""
    value = journal.incarnation(connection)
    if not value:
        raise ConfigurationError("restore_unconfirmed", "confirm the restore first; this is no catalog yet")
    return value


def _write_table(connection: Connection, table: Table, folder: Path) -> int:
    rows = 0
    found = connection.execution_options(yield_per=_BATCH).execute(select(table).order_by(*table.primary_key))
    with (folder / f"{table.name}.jsonl").open("w", encoding="ascii") as file:
        for row in found:
            file.write(json.dumps(dict(row._mapping), sort_keys=True) + "\n")
            rows += 1
    return rows


def wanted_objects(connection: Connection) -> frozenset[str]:
    """What a backup takes: originals, chunk files and vector files, also of versions that were withdrawn."""
    return _objects_of(connection, retained.needed_versions(withdrawn_since=0.0))


def needed_objects(connection: Connection) -> frozenset[str]:
    """Those among them that nobody may have taken away."""
    return _objects_of(connection, retained.needed_versions())


def _objects_of(connection: Connection, chosen: Subquery) -> frozenset[str]:
    version = document_versions.c
    files = select(version.original_key, version.chunks_key).join(
        chosen,
        and_(version.document_id == chosen.c.document_id, version.version == chosen.c.version),
    )
    vectors = (
        select(vector_places.c.object_key)
        .distinct()
        .join(manifest, manifest.c.text_hash == vector_places.c.text_hash)
        .join(
            chosen,
            and_(manifest.c.document_id == chosen.c.document_id, manifest.c.version == chosen.c.version),
        )
    )
    keys = {key for row in connection.execute(files) for key in row if key}
    return frozenset(keys.union(connection.execute(vectors).scalars()))


# and back


def load(connection: Connection, folder: Path, dumped: CatalogDump, note: Mapping[str, str]) -> None:
    """Fills empty tables. The catalog then has no incarnation, and ``note`` in its table ``meta``.

    Raises ConfigurationError (``catalog_not_empty``, ``backup_of_other_schema``), BackupDamaged.
    """
    if (here := schema_of(connection)) != dumped.schema:
        raise ConfigurationError(
            "backup_of_other_schema",
            f"the backup has schema {dumped.schema}, this version {here}: restore with the version that "
            "made it, then upgrade",
        )
    if dumped.rows.keys() != TABLE_NAMES:
        raise BackupDamaged("the backup has other tables than its schema")
    _refuse_filled(connection)
    connection.execute(delete(meta))
    for table in _TABLES:
        for batch in _batches(_lines(folder / f"{table.name}.jsonl", table)):
            connection.execute(insert(table), batch)
    _continue_numbers(connection)
    restoring.give_back_tasks(connection)
    journal.hold(connection, database_time(connection), dumped.incarnation)
    connection.execute(update(meta).where(meta.c.key == INCARNATION).values(value=""))
    connection.execute(insert(meta), [{"key": key, "value": value} for key, value in note.items()])


def _refuse_filled(connection: Connection) -> None:
    for table in _TABLES:
        if table is not meta and connection.execute(select(table).limit(1)).first() is not None:
            raise ConfigurationError(
                "catalog_not_empty", f"a restore needs an empty catalog, and {table.name} has rows"
            )


def _lines(path: Path, table: Table) -> Iterator[dict[str, Any]]:
    known = set(table.columns.keys())
    with path.open(encoding="ascii") as file:
        for line in file:
            row = json.loads(line)
            if set(row) != known:
                raise BackupDamaged(f"a row of {table.name} has other columns")
            yield row


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _continue_numbers(connection: Connection) -> None:
    """PostgreSQL counts in sequences, which know nothing of rows that bring their numbers with them."""
    if not is_postgres(connection):
        return
    for table in _TABLES:
        if "seq" not in table.columns or not table.columns["seq"].primary_key or len(table.primary_key) > 1:
            continue
        newest = connection.execute(select(func.max(table.c.seq))).scalar_one()
        if newest is not None:
            connection.execute(
                text("SELECT setval(pg_get_serial_sequence(:name, 'seq'), :newest)"),
                {"name": table.name, "newest": newest},
            )
