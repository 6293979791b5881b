"""Tables of the catalog: what every statement and the migrations are checked against.

Times are seconds since the epoch. Structured values are canonical JSON text: no statement looks inside.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    Table,
    UniqueConstraint,
    false,
)

from gateway.adapters.sql import lexicon_tables as lexicon_tables  # these two: in the same metadata
from gateway.adapters.sql import trace_tables as trace_tables
from gateway.adapters.sql.columns import metadata as metadata
from gateway.adapters.sql.columns import moment, number, partial, serial, words

meta = Table("meta", metadata, words("key", primary_key=True), words("value"))

tenants = Table("tenants", metadata, words("tenant", primary_key=True), number("revocation_epoch"))

knowledge_bases = Table(
    "knowledge_bases",
    metadata,
    words("kb_id", primary_key=True),
    words("tenant", ForeignKey("tenants.tenant")),
    words("name"),
    number("acl_revision"),
    words("active_release_id", nullable=True),
    number("release_sequence"),
    number("next_class"),
    number("ready_count"),  # versions that ever became READY: orders them against snapshots
    number("judged_count", server_default="0"),  # how often one was approved, rejected or lost its files
    moment("created_at"),
    UniqueConstraint("tenant", "name"),
)

acl_classes = Table(
    "acl_classes",
    metadata,
    words("kb_id", ForeignKey("knowledge_bases.kb_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    words("digest"),
    words("allow"),
    words("deny"),
    UniqueConstraint("kb_id", "digest"),
)

tasks = Table(
    "tasks",
    metadata,
    serial("seq"),
    words("task_id", unique=True),
    words("kind"),
    words("tenant"),
    words("kb_id", ForeignKey("knowledge_bases.kb_id")),
    words("subject"),
    words("state"),
    words("stage"),
    number("done"),
    number("total"),
    words("error_code", nullable=True),
    words("error_detail", nullable=True),
    Column("activate", Boolean, nullable=False),
    Column("allow_partial", Boolean, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    number("attempts"),
    number("fence"),
    words("worker", nullable=True),
    moment("lease_until", nullable=True),
    moment("deadline_at"),
    words("release_id", nullable=True),
    words("planned_release_id", nullable=True),
    words("target", nullable=True),  # the document that a move or a clean-up is about
    words("report", nullable=True),
    moment("not_before", nullable=True),  # a task that met passing trouble rests until then
    words("trouble", nullable=True),  # what it met
    number("put_offs", server_default="0"),
    moment("claimed_at", nullable=True),
    moment("created_at"),
    moment("updated_at"),
    Index(None, "state", "seq"),
    Index(None, "tenant", "seq"),
    Index(None, "tenant", "claimed_at"),  # whose turn it is
    partial("uq_tasks_running", "kb_id", where="state = 'RUNNING'", unique=True),
)

documents = Table(
    "documents",
    metadata,
    words("document_id", primary_key=True),
    words("tenant"),
    words("kb_id", ForeignKey("knowledge_bases.kb_id")),
    words("source"),
    number("acl_class"),
    number("newest_version"),
    moment("deleted_at", nullable=True),
    moment("created_at"),
    UniqueConstraint("kb_id", "source"),
    Index(None, "kb_id", "document_id"),  # else SQLite re-checks candidates by reading the whole base
    partial("ix_documents_live", "kb_id", "acl_class", where="deleted_at IS NULL"),
    ForeignKeyConstraint(["kb_id", "acl_class"], ["acl_classes.kb_id", "acl_classes.number"]),
)

document_versions = Table(
    "document_versions",
    metadata,
    words("document_id", ForeignKey("documents.document_id"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    words("task_id", ForeignKey("tasks.task_id"), index=True),
    number("fence"),
    words("state"),
    number("acl_class"),
    words("fingerprint"),
    words("content_sha256"),
    Column("size_bytes", BigInteger, nullable=False),
    words("original_key"),
    words("media_type"),
    words("title"),
    words("uri"),
    words("category"),
    Column("valid_from", BigInteger),
    Column("valid_until", BigInteger),
    number("sensitivity"),
    words("author"),
    words("approval"),
    words("approved_by", nullable=True),
    moment("approved_at", nullable=True),
    words("approval_note", nullable=True),
    words("risk"),
    Column("high_risk", Boolean, nullable=False, server_default=false()),
    words("parser_version"),
    words("splitter_version"),
    words("chunks_key"),
    words("error_reason", nullable=True),
    words("error_detail", nullable=True),
    number("ready_number", nullable=True),
    moment("withdrawn_at", nullable=True),
    moment("deleted_at", nullable=True),  # with its document; a later import under the source leaves it so
    moment("created_at"),
    partial(
        "ix_document_versions_to_clean", "document_id", where="deleted_at IS NOT NULL AND chunks_key <> ''"
    ),
    Index(None, "original_key"),
)

manifest = Table(
    "manifest",
    metadata,
    words("document_id", primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("chunk_index", Integer, primary_key=True, autoincrement=False),
    words("chunk_id"),
    words("content_hash"),
    words("text_hash"),
    ForeignKeyConstraint(
        ["document_id", "version"], ["document_versions.document_id", "document_versions.version"]
    ),
    Index(None, "text_hash"),
    sqlite_with_rowid=False,
)

vector_places = Table(
    "vector_places",
    metadata,
    words("space_id", primary_key=True),
    words("text_hash", primary_key=True),
    words("object_key"),
    number("position"),
    words("made_by", nullable=True),  # the task that embedded it
    Index(None, "object_key"),
    sqlite_with_rowid=False,
)

embedding_spaces = Table(
    "embedding_spaces",
    metadata,
    words("space_id", primary_key=True),
    words("model"),
    number("dimension"),
    words("text_form"),
)

releases = Table(
    "releases",
    metadata,
    serial("seq"),
    words("release_id", unique=True),
    words("tenant"),
    words("kb_id", ForeignKey("knowledge_bases.kb_id")),
    words("kb_revision", unique=True),
    words("state"),
    number("sequence", nullable=True),
    number("base_sequence"),
    # the sequence whose activation retired it; none once a rollback went behind it
    number("retired_sequence", nullable=True),
    number("ready_count"),  # the knowledge base's ready_count when the snapshot was taken
    number("revocation_epoch"),
    words("space_id", ForeignKey("embedding_spaces.space_id")),
    words("config"),
    words("model_adapter", server_default=""),  # the one that answers first
    words("manifest_hash"),
    number("documents"),
    number("chunks"),
    words("barrier", nullable=True),
    words("error", nullable=True),
    words("task_id", ForeignKey("tasks.task_id"), index=True),
    moment("created_at"),
    moment("activated_at", nullable=True),
    moment("retired_at", nullable=True),
    moment("reclaimed_at", nullable=True),
    moment("swept_at", nullable=True),  # its rows were last taken away
    Index(None, "kb_id", "seq"),
    partial("uq_releases_active", "kb_id", where="state = 'ACTIVE'", unique=True),
)

activations = Table(
    "activations",
    metadata,
    words("kb_id", ForeignKey("knowledge_bases.kb_id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    words("release_id"),
    words("space_id"),
    words("config"),
    words("config_left", nullable=True),  # the config gone back from
    words("model_adapter", server_default=""),
    words("model_left", nullable=True),
    moment("at"),
    sqlite_with_rowid=False,
)

release_documents = Table(
    "release_documents",
    metadata,
    words("release_id", ForeignKey("releases.release_id"), primary_key=True),
    words("document_id", primary_key=True),
    number("version"),
    number("acl_class"),
    number("moving", nullable=True),  # rows may carry this class by now: a move has begun
    words("approval", server_default="unreviewed"),  # as its rows say
    Index(None, "document_id"),
    sqlite_with_rowid=False,
)

task_documents = Table(
    "task_documents",
    metadata,
    words("task_id", ForeignKey("tasks.task_id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    words("document_id"),
    number("version"),
    Index(None, "document_id", "version"),
)

task_steps = Table(
    "task_steps",
    metadata,
    serial("seq"),
    words("task_id", ForeignKey("tasks.task_id"), index=True),
    number("fence"),
    words("stage"),
    moment("at"),
)

outbox = Table(
    "outbox",
    metadata,
    serial("seq"),
    words("topic"),
    words("payload"),
    moment("created_at"),
    moment("sent_at", nullable=True),
    moment("claimed_until", nullable=True),  # somebody is sending it to the journal
    partial("ix_outbox_unsent", "seq", where="sent_at IS NULL"),
)

#: entries of the journal that belong to an earlier incarnation and that this catalog holds
journal_replays = Table(
    "journal_replays",
    metadata,
    words("incarnation", primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    moment("replayed_at"),
)

#: objects that nothing refers to and that somebody is deleting: until that is done nobody may refer to them
condemned = Table(
    "condemned",
    metadata,
    words("object_key", primary_key=True),
    moment("at"),
)

revocations = Table(
    "revocations",
    metadata,
    serial("seq"),
    words("revocation_id", unique=True),
    words("tenant", ForeignKey("tenants.tenant")),
    words("kind"),
    words("subject"),
    words("reason"),
    words("revoked_by"),
    number("revocation_epoch"),
    words("task_id", nullable=True),  # the clean-up that follows
    moment("created_at"),
    moment("lifted_at", nullable=True),
    partial("uq_revocations_in_force", "tenant", "kind", "subject", where="lifted_at IS NULL", unique=True),
)

api_keys = Table(
    "api_keys",
    metadata,
    serial("seq"),
    words("key_id", unique=True),
    words("tenant"),
    words("name"),
    words("groups"),
    words("scopes"),
    words("digest"),
    words("created_by"),
    moment("created_at"),
    moment("expires_at", nullable=True),
    moment("revoked_at", nullable=True),
    Index(None, "tenant", "seq"),
)

orders = Table(
    "orders",
    metadata,
    serial("seq"),
    words("order_id", unique=True),
    words("kind"),
    words("tenant"),
    words("subject"),
    words("request_id"),
    moment("created_at"),
)

#: of an order that may be gone already: it is taken back while others still reply
order_replies = Table(
    "order_replies",
    metadata,
    words("order_id", primary_key=True),
    words("process", primary_key=True),
    Column("found", Boolean, nullable=False),
    words("sessions"),
    moment("created_at"),
)

audit = Table(
    "audit",
    metadata,
    serial("seq"),
    moment("at"),
    words("tenant"),
    words("subject"),
    words("action"),
    words("request_id"),
    words("details"),
    Index(None, "tenant", "seq"),
    Index(None, "tenant", "action", "seq"),
)

idempotency = Table(
    "idempotency",
    metadata,
    words("tenant", primary_key=True),
    words("subject", primary_key=True),
    words("key", primary_key=True),
    words("request_hash"),
    words("answer"),
    moment("created_at"),
)
