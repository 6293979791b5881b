"""Tables of what people searched: traces and the passages that they quote."""

from sqlalchemy import Index, Table

from gateway.adapters.sql.columns import metadata, moment, number, serial, words

traces = Table(
    "traces",
    metadata,
    serial("seq"),
    words("trace_id", unique=True),
    words("request_id"),
    moment("at"),
    words("tenant"),
    words("subject"),
    words("question"),
    words("facts"),
    Index(None, "tenant", "request_id"),
    Index(None, "tenant", "subject"),
    Index(None, "at"),
)

#: by document, because whatever quotes a deleted one loses it
trace_passages = Table(
    "trace_passages",
    metadata,
    words("trace_id", primary_key=True),
    number("n", primary_key=True, autoincrement=False),
    words("document_id"),
    number("version"),
    words("facts"),
    Index(None, "document_id"),
)

turns = Table(
    "turns",
    metadata,
    serial("seq"),
    words("turn_id", unique=True),
    words("tenant"),
    words("subject"),
    words("kb_id"),
    words("conversation_id"),
    moment("at"),
    words("question"),
    Index(None, "tenant", "subject", "kb_id", "conversation_id"),
    Index(None, "at"),
)

turn_documents = Table(
    "turn_documents",
    metadata,
    words("turn_id", primary_key=True),
    words("document_id", primary_key=True),
    number("version", primary_key=True, autoincrement=False),
    Index(None, "document_id"),
)
