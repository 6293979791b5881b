"""Tables of the catalog: what every statement and the migrations are checked against.

Times are seconds since the epoch. Structured values (ACLs, risk markers, configs, barriers, details)
are canonical JSON text, because no statement ever looks inside them.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: a number the database hands out, rising in order of insertion
_SERIAL = BigInteger().with_variant(Integer, "sqlite")


def _text(name: str, *args: Any, **options: Any) -> Column[str]:
    return Column(name, Text, *args, **{"nullable": False, **options})


def _number(name: str, **options: Any) -> Column[int]:
    return Column(name, Integer, **{"nullable": False, **options})


def _time(name: str, **options: Any) -> Column[float]:
    return Column(name, Double, **{"nullable": False, **options})


def _serial(name: str) -> Column[int]:
    return Column(name, _SERIAL, primary_key=True, autoincrement=True)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


meta = Table("meta", metadata, _text("key", primary_key=True), _text("value"))

tenants = Table("tenants", metadata, _text("tenant", primary_key=True), _number("revocation_epoch"))

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    _text("kb_id", primary_key=True),
    _text("tenant", ForeignKey("tenants.tenant")),
    _text("name"),
    _number("acl_revision"),
    _text("active_release_id", nullable=True),
    _number("release_sequence"),
    _number("next_class"),
    _number("ready_count"),  # versions that ever became READY: orders them against snapshots
    _time("created_at"),
    UniqueConstraint("tenant", "name"),
)

acl_classes = Table(
    "acl_classes",
    metadata,
    _text("kb_id", ForeignKey("knowledge_bases.kb_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    _text("digest"),
    _text("allow"),
    _text("deny"),
    UniqueConstraint("kb_id", "digest"),
)

tasks = Table(
    "tasks",
    metadata,
    _serial("seq"),
    _text("task_id", unique=True),
    _text("kind"),
    _text("tenant"),
    _text("kb_id", ForeignKey("knowledge_bases.kb_id")),
    _text("subject"),
    _text("state"),
    _text("stage"),
    _number("done"),
    _number("total"),
    _text("error_code", nullable=True),
    _text("error_detail", nullable=True),
    Column("activate", Boolean, nullable=False),
    Column("allow_partial", Boolean, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    _number("attempts"),
    _number("fence"),
    _text("worker", nullable=True),
    _time("lease_until", nullable=True),
    _time("deadline_at"),
    _text("release_id", nullable=True),
    _text("planned_release_id", nullable=True),
    _text("target", nullable=True),  # the document that a move or a clean-up is about
    _text("report", nullable=True),
    _time("not_before", nullable=True),  # a task that met passing trouble rests until then
    _text("trouble", nullable=True),  # what it met
    _number("put_offs", server_default="0"),
    _time("claimed_at", nullable=True),
    _time("created_at"),
    _time("updated_at"),
    Index(None, "state", "seq"),
    Index(None, "tenant", "seq"),
    Index(None, "tenant", "claimed_at"),  # whose turn it is
    _partial("uq_tasks_running", "kb_id", where="state = 'RUNNING'", unique=True),
)

documents = Table(
    "documents",
    metadata,
    _text("document_id", primary_key=True),
    _text("tenant"),
    _text("kb_id", ForeignKey("knowledge_bases.kb_id")),
    _text("source"),
    _number("acl_class"),
    _number("newest_version"),
    _time("deleted_at", nullable=True),
    _time("created_at"),
    UniqueConstraint("kb_id", "source"),
    Index(None, "kb_id", "document_id"),  # else SQLite re-checks candidates by reading the whole base
    _partial("ix_documents_live", "kb_id", "acl_class", where="deleted_at IS NULL"),
    ForeignKeyConstraint(["kb_id", "acl_class"], ["acl_classes.kb_id", "acl_classes.number"]),
)

document_versions = Table(
    "document_versions",
    metadata,
    _text("document_id", ForeignKey("documents.document_id"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    _text("task_id", ForeignKey("tasks.task_id")),
    _number("fence"),
    _text("state"),
    _number("acl_class"),
    _text("fingerprint"),
    _text("content_sha256"),
    Column("size_bytes", BigInteger, nullable=False),
    _text("original_key"),
    _text("media_type"),
    _text("title"),
    _text("uri"),
    _text("category"),
    Column("valid_from", BigInteger),
    Column("valid_until", BigInteger),
    _number("sensitivity"),
    _text("author"),
    _text("approval"),
    _text("approved_by", nullable=True),
    _time("approved_at", nullable=True),
    _text("approval_note", nullable=True),
    _text("risk"),
    Column("high_risk", Boolean, nullable=False, server_default=false()),
    _text("parser_version"),
    _text("splitter_version"),
    _text("chunks_key"),
    _text("error_reason", nullable=True),
    _text("error_detail", nullable=True),
    _number("ready_number", nullable=True),
    _time("withdrawn_at", nullable=True),
    _time("deleted_at", nullable=True),  # with its document; a later import under the source leaves it so
    _time("created_at"),
    _partial(
        "ix_document_versions_to_clean", "document_id", where="deleted_at IS NOT NULL AND chunks_key <> ''"
    ),
    Index(None, "original_key"),
)

manifest = Table(
    "manifest",
    metadata,
    _text("document_id", primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("chunk_index", Integer, primary_key=True, autoincrement=False),
    _text("chunk_id"),
    _text("content_hash"),
    _text("text_hash"),
    ForeignKeyConstraint(
        ["document_id", "version"], ["document_versions.document_id", "document_versions.version"]
    ),
    Index(None, "text_hash"),
    sqlite_with_rowid=False,
)

vector_places = Table(
    "vector_places",
    metadata,
    _text("space_id", primary_key=True),
    _text("text_hash", primary_key=True),
    _text("object_key"),
    _number("position"),
    _text("made_by", nullable=True),  # the task that embedded it
    Index(None, "object_key"),
    sqlite_with_rowid=False,
)

embedding_spaces = Table(
    "embedding_spaces",
    metadata,
    _text("space_id", primary_key=True),
    _text("model"),
    _number("dimension"),
    _text("text_form"),
)

releases = Table(
    "releases",
    metadata,
    _serial("seq"),
    _text("release_id", unique=True),
    _text("tenant"),
    _text("kb_id", ForeignKey("knowledge_bases.kb_id")),
    _text("kb_revision", unique=True),
    _text("state"),
    _number("sequence", nullable=True),
    _number("base_sequence"),
    # the sequence whose activation retired it; none once a rollback went behind it
    _number("retired_sequence", nullable=True),
    _number("ready_count"),  # the knowledge base's ready_count when the snapshot was taken
    _number("revocation_epoch"),
    _text("space_id", ForeignKey("embedding_spaces.space_id")),
    _text("config"),
    _text("manifest_hash"),
    _number("documents"),
    _number("chunks"),
    _text("barrier", nullable=True),
    _text("error", nullable=True),
    _text("task_id", ForeignKey("tasks.task_id"), index=True),
    _time("created_at"),
    _time("activated_at", nullable=True),
    _time("retired_at", nullable=True),
    _time("reclaimed_at", nullable=True),
    _time("swept_at", nullable=True),  # its rows were last taken away
    Index(None, "kb_id", "seq"),
    _partial("uq_releases_active", "kb_id", where="state = 'ACTIVE'", unique=True),
)

activations = Table(
    "activations",
    metadata,
    _text("kb_id", ForeignKey("knowledge_bases.kb_id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    _text("release_id"),
    _text("space_id"),
    _text("config"),
    _text("config_left", nullable=True),  # the config gone back from
    _time("at"),
    sqlite_with_rowid=False,
)

release_documents = Table(
    "release_documents",
    metadata,
    _text("release_id", ForeignKey("releases.release_id"), primary_key=True),
    _text("document_id", primary_key=True),
    _number("version"),
    _number("acl_class"),
    _number("moving", nullable=True),  # rows may carry this class by now: a move has begun
    _text("approval", server_default="unreviewed"),  # as its rows say
    Index(None, "document_id"),
    sqlite_with_rowid=False,
)

release_classes = Table(
    "release_classes",
    metadata,
    _text("kb_revision", ForeignKey("releases.kb_revision"), primary_key=True),
    Column("acl_class", Integer, primary_key=True, autoincrement=False),
    _number("passages"),
    sqlite_with_rowid=False,
)

release_terms = Table(
    "release_terms",
    metadata,
    _text("kb_revision", primary_key=True),
    _text("term", primary_key=True),
    Column("acl_class", Integer, primary_key=True, autoincrement=False),
    _number("df"),
    ForeignKeyConstraint(
        ["kb_revision", "acl_class"], ["release_classes.kb_revision", "release_classes.acl_class"]
    ),
    sqlite_with_rowid=False,
)

task_documents = Table(
    "task_documents",
    metadata,
    _text("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    _text("document_id"),
    _number("version"),
    Index(None, "document_id", "version"),
)

task_steps = Table(
    "task_steps",
    metadata,
    _serial("seq"),
    _text("task_id", ForeignKey("tasks.task_id"), index=True),
    _number("fence"),
    _text("stage"),
    _time("at"),
)

outbox = Table(
    "outbox",
    metadata,
    _serial("seq"),
    _text("topic"),
    _text("payload"),
    _time("created_at"),
    _time("sent_at", nullable=True),
    _time("claimed_until", nullable=True),  # somebody is sending it to the journal
    _partial("ix_outbox_unsent", "seq", where="sent_at IS NULL"),
)

#: entries of the journal that belong to an earlier incarnation and that this catalog holds
journal_replays = Table(
    "journal_replays",
    metadata,
    _text("incarnation", primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    _time("replayed_at"),
)

#: objects that nothing refers to and that somebody is deleting: until that is done nobody may refer to them
condemned = Table(
    "condemned",
    metadata,
    _text("object_key", primary_key=True),
    _time("at"),
)

revocations = Table(
    "revocations",
    metadata,
    _serial("seq"),
    _text("revocation_id", unique=True),
    _text("tenant", ForeignKey("tenants.tenant")),
    _text("kind"),
    _text("subject"),
    _text("reason"),
    _text("revoked_by"),
    _number("revocation_epoch"),
    _text("task_id", nullable=True),  # the clean-up that follows
    _time("created_at"),
    _time("lifted_at", nullable=True),
    _partial("uq_revocations_in_force", "tenant", "kind", "subject", where="lifted_at IS NULL", unique=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    _serial("seq"),
    _text("key_id", unique=True),
    _text("tenant"),
    _text("name"),
    _text("groups"),
    _text("scopes"),
    _text("digest"),
    _text("created_by"),
    _time("created_at"),
    _time("expires_at", nullable=True),
    _time("revoked_at", nullable=True),
    Index(None, "tenant", "seq"),
)

orders = Table(
    "orders",
    metadata,
    _serial("seq"),
    _text("order_id", unique=True),
    _text("kind"),
    _text("tenant"),
    _text("subject"),
    _text("request_id"),
    _time("created_at"),
)

#: of an order that may be gone already: it is taken back while others still reply
order_replies = Table(
    "order_replies",
    metadata,
    _text("order_id", primary_key=True),
    _text("process", primary_key=True),
    Column("found", Boolean, nullable=False),
    _text("sessions"),
    _time("created_at"),
)

audit = Table(
    "audit",
    metadata,
    _serial("seq"),
    _time("at"),
    _text("tenant"),
    _text("subject"),
    _text("action"),
    _text("request_id"),
    _text("details"),
    Index(None, "tenant", "seq"),
    Index(None, "tenant", "action", "seq"),
)

idempotency = Table(
    "idempotency",
    metadata,
    _text("tenant", primary_key=True),
    _text("subject", primary_key=True),
    _text("key", primary_key=True),
    _text("request_hash"),
    _text("answer"),
    _time("created_at"),
)
