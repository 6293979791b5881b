"""Rows shared by every noun: knowledge bases, epochs, fresh ids, and values kept as JSON text."""

import functools
import json
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Row, Table, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.access.classes import Acl
from gateway.adapters.sql.notify import notify
from gateway.adapters.sql.tables import documents, knowledge_bases, tenants
from gateway.errors import KnowledgeBaseNotFound

T = TypeVar("T")

#: values in one IN list; databases bound the number of parameters
_BATCH = 1000


def fresh_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def to_json(value: object) -> str:
    """Canonical: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def acl_texts(acl: Acl) -> tuple[str, str]:
    """Allow and deny as the catalog keeps them."""
    return to_json(sorted(acl.allow)), to_json(sorted(acl.deny))


@functools.lru_cache(maxsize=16_384)
def acl_from(allow: str, deny: str) -> Acl:
    return Acl(frozenset(json.loads(allow)), frozenset(json.loads(deny)))


def batches(values: Sequence[T]) -> Iterator[Sequence[T]]:
    return (values[start : start + _BATCH] for start in range(0, len(values), _BATCH))


def padded(values: Sequence[T]) -> list[T]:
    """The values, the last repeated up to a power of two: so an IN list has few texts to compile."""
    return [*values, *[values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values))]


def by_code_points(connection: Connection, column: Column[str]) -> ColumnElement[str]:
    """The column in the order that Python has and SQLite; PostgreSQL's is its database's language's."""
    return column.collate("C") if connection.dialect.name == "postgresql" else column


def insert_missing(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Inserts the rows whose key isn't there yet, whoever else is inserting them."""
    if not rows:
        return
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(build(table).on_conflict_do_nothing(), list(rows))


def bump_epoch(connection: Connection, tenant: str) -> int:
    """The tenant's next revocation epoch; every process that follows rights hears of the commit."""
    notify(connection)
    insert_missing(connection, tenants, [{"tenant": tenant, "revocation_epoch": 0}])
    bumped = connection.execute(
        update(tenants)
        .where(tenants.c.tenant == tenant)
        .values(revocation_epoch=tenants.c.revocation_epoch + 1)
        .returning(tenants.c.revocation_epoch)
    )
    return int(bumped.scalar_one())


_NAMED = select(knowledge_bases).where(
    knowledge_bases.c.tenant == bindparam("tenant"), knowledge_bases.c.name == bindparam("name")
)


def named_kb(connection: Connection, tenant: str, name: str) -> Row[Any] | None:
    return connection.execute(_NAMED, {"tenant": tenant, "name": name}).one_or_none()


def locked_kb(connection: Connection, kb_id: str) -> Row[Any]:
    """The knowledge base's row, held against every other writer until the transaction ends."""
    held = select(knowledge_bases).where(knowledge_bases.c.kb_id == kb_id).with_for_update()
    return connection.execute(held).one()


def placed(connection: Connection, document_ids: Collection[str]) -> Sequence[tuple[str, str]]:
    """(kb_id, document_id) of each, in an order that everybody keeps who locks several knowledge bases."""
    places = select(documents.c.kb_id, documents.c.document_id)
    found: list[tuple[str, str]] = []
    for batch in batches(sorted(document_ids)):
        rows = connection.execute(places.where(documents.c.document_id.in_(batch)))
        found.extend((row.kb_id, row.document_id) for row in rows)
    return sorted(found)


def known_kb(connection: Connection, tenant: str, name: str) -> Row[Any]:
    """As ``locked_kb``, by name. Raises KnowledgeBaseNotFound."""
    found = connection.execute(_NAMED.with_for_update(), {"tenant": tenant, "name": name}).one_or_none()
    if found is None:
        raise KnowledgeBaseNotFound()
    return found


def made_kb(connection: Connection, tenant: str, name: str, now: float) -> Row[Any]:
    """As ``locked_kb``, by name; made when it is new."""
    if named_kb(connection, tenant, name) is None:
        insert_missing(connection, tenants, [{"tenant": tenant, "revocation_epoch": 0}])
        fresh = {
            "kb_id": fresh_id("kb"),
            "tenant": tenant,
            "name": name,
            "acl_revision": 0,
            "active_release_id": None,
            "release_sequence": 0,
            "next_class": 1,
            "ready_count": 0,
            "created_at": now,
        }
        insert_missing(connection, knowledge_bases, [fresh])
    return known_kb(connection, tenant, name)


def add(connection: Connection, table: Table, **values: Any) -> None:
    connection.execute(insert(table), values)
