"""Leaving an entry for the journal in the outbox, in the transaction of the act itself."""

from collections.abc import Mapping

from sqlalchemy import Connection

from gateway.adapters.sql.rows import add, to_json
from gateway.adapters.sql.tables import outbox
from gateway.ingest.journal import TOPIC_PREFIX


def leave(connection: Connection, now: float, kind: str, entry: Mapping[str, object]) -> None:
    add(connection, outbox, topic=TOPIC_PREFIX + kind, payload=to_json(dict(entry)), created_at=now)
