"""Turns of conversations: whose they are, and the documents without which they aren't used."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, Select, and_, delete, insert, select

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.rows import batches
from gateway.adapters.sql.trace_tables import turn_documents, turns
from gateway.adapters.sql.traces import deleted
from gateway.answer.conversation import ConversationKey, Turn

_MOST_PURGED = 500


def listed(connection: Connection, key: ConversationKey, since: float, limit: int) -> list[Turn]:
    rows = connection.execute(
        _of(key).where(turns.c.at >= since).order_by(turns.c.seq.desc()).limit(limit)
    ).all()
    documents: dict[str, set[DocumentRef]] = defaultdict(set)
    of_turns = turn_documents.c.turn_id.in_([row.turn_id for row in rows])
    for row in connection.execute(select(turn_documents).where(of_turns)):
        documents[row.turn_id].add(DocumentRef(row.document_id, row.version))
    return [Turn(row.turn_id, key, row.at, row.question, frozenset(documents[row.turn_id])) for row in rows]


def _of(key: ConversationKey) -> Select[tuple[str, float, str]]:
    return select(turns.c.turn_id, turns.c.at, turns.c.question).where(
        turns.c.tenant == key.tenant,
        turns.c.subject == key.subject,
        turns.c.kb_id == key.kb_id,
        turns.c.conversation_id == key.conversation_id,
    )


def add(connection: Connection, turn: Turn, most: int) -> None:
    if deleted(connection, turn.documents):
        return
    key = turn.key
    connection.execute(
        insert(turns),
        {
            "turn_id": turn.turn_id,
            "tenant": key.tenant,
            "subject": key.subject,
            "kb_id": key.kb_id,
            "conversation_id": key.conversation_id,
            "at": turn.at,
            "question": turn.question,
        },
    )
    rows = [
        {"turn_id": turn.turn_id, "document_id": ref.document_id, "version": ref.document_version}
        for ref in turn.documents
    ]
    if rows:
        connection.execute(insert(turn_documents), rows)
    older = connection.execute(_of(key).order_by(turns.c.seq.desc()).offset(most)).all()
    _drop(connection, [row.turn_id for row in older])


def erase(connection: Connection, tenant: str, subject: str) -> int:
    """Of a person, as many as one short transaction may hold."""
    mine = select(turns.c.turn_id).where(turns.c.tenant == tenant, turns.c.subject == subject)
    return _drop(connection, connection.execute(mine.limit(_MOST_PURGED)).scalars().all())


def purge(connection: Connection, before: float) -> int:
    old = select(turns.c.turn_id).where(turns.c.at < before).order_by(turns.c.at).limit(_MOST_PURGED)
    return _drop(connection, connection.execute(old).scalars().all())


def forget(connection: Connection, document_id: str, versions: Sequence[int]) -> int:
    """Turns that rest on these versions, as many as one short transaction may hold; how many that were."""
    rest_on = and_(turn_documents.c.document_id == document_id, turn_documents.c.version.in_(versions))
    resting = select(turn_documents.c.turn_id).where(rest_on).distinct().limit(_MOST_PURGED)
    found = connection.execute(resting)
    return _drop(connection, found.scalars().all())


def _drop(connection: Connection, turn_ids: Sequence[str]) -> int:
    for batch in batches(turn_ids):
        for table in (turn_documents, turns):
            connection.execute(delete(table).where(table.c.turn_id.in_(batch)))
    return len(turn_ids)
