"""The whole catalog, as it first shipped."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_tenant_action_seq"), "audit", ["tenant", "action", "seq"], unique=False)
    op.create_index(op.f("ix_audit_tenant_seq"), "audit", ["tenant", "seq"], unique=False)
    op.create_table(
        "embedding_spaces",
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("text_form", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", name=op.f("pk_embedding_spaces")),
    )
    op.create_table(
        "idempotency",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "subject", "key", name=op.f("pk_idempotency")),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "outbox",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_unsent",
        "outbox",
        ["seq"],
        unique=False,
        sqlite_where=sa.text("sent_at IS NULL"),
        postgresql_where=sa.text("sent_at IS NULL"),
    )
    op.create_table(
        "tenants",
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("revocation_epoch", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name=op.f("pk_tenants")),
    )
    op.create_table(
        "vector_places",
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("text_hash", sa.Text(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("space_id", "text_hash", name=op.f("pk_vector_places")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "knowledge_bases",
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("acl_revision", sa.Integer(), nullable=False),
        sa.Column("active_release_id", sa.Text(), nullable=True),
        sa.Column("release_sequence", sa.Integer(), nullable=False),
        sa.Column("next_class", sa.Integer(), nullable=False),
        sa.Column("ready_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.tenant"], name=op.f("fk_knowledge_bases_tenant")),
        sa.PrimaryKeyConstraint("kb_id", name=op.f("pk_knowledge_bases")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_knowledge_bases_tenant_name")),
    )
    op.create_table(
        "revocations",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("revocation_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("revoked_by", sa.Text(), nullable=False),
        sa.Column("revocation_epoch", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("lifted_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.tenant"], name=op.f("fk_revocations_tenant")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_revocations")),
        sa.UniqueConstraint("revocation_id", name=op.f("uq_revocations_revocation_id")),
    )
    op.create_index(
        "uq_revocations_in_force",
        "revocations",
        ["tenant", "kind", "subject"],
        unique=True,
        sqlite_where=sa.text("lifted_at IS NULL"),
        postgresql_where=sa.text("lifted_at IS NULL"),
    )
    op.create_table(
        "acl_classes",
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("allow", sa.Text(), nullable=False),
        sa.Column("deny", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.kb_id"], name=op.f("fk_acl_classes_kb_id")),
        sa.PrimaryKeyConstraint("kb_id", "number", name=op.f("pk_acl_classes")),
        sa.UniqueConstraint("kb_id", "digest", name=op.f("uq_acl_classes_kb_id_digest")),
    )
    op.create_table(
        "tasks",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("error_detail", sa.Text(), nullable=True),
        sa.Column("activate", sa.Boolean(), nullable=False),
        sa.Column("allow_partial", sa.Boolean(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("deadline_at", sa.Double(), nullable=False),
        sa.Column("release_id", sa.Text(), nullable=True),
        sa.Column("planned_release_id", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.kb_id"], name=op.f("fk_tasks_kb_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_tasks")),
        sa.UniqueConstraint("task_id", name=op.f("uq_tasks_task_id")),
    )
    op.create_index(op.f("ix_tasks_state_seq"), "tasks", ["state", "seq"], unique=False)
    op.create_index(
        "uq_tasks_running",
        "tasks",
        ["kb_id"],
        unique=True,
        sqlite_where=sa.text("state = 'RUNNING'"),
        postgresql_where=sa.text("state = 'RUNNING'"),
    )
    op.create_table(
        "documents",
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), nullable=False),
        sa.Column("newest_version", sa.Integer(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kb_id", "acl_class"],
            ["acl_classes.kb_id", "acl_classes.number"],
            name=op.f("fk_documents_kb_id_acl_class"),
        ),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.kb_id"], name=op.f("fk_documents_kb_id")),
        sa.PrimaryKeyConstraint("document_id", name=op.f("pk_documents")),
        sa.UniqueConstraint("kb_id", "source", name=op.f("uq_documents_kb_id_source")),
    )
    op.create_index(
        op.f("ix_documents_kb_id_document_id"), "documents", ["kb_id", "document_id"], unique=False
    )
    op.create_table(
        "releases",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("release_id", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("kb_revision", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=True),
        sa.Column("base_sequence", sa.Integer(), nullable=False),
        sa.Column("retired_sequence", sa.Integer(), nullable=True),
        sa.Column("ready_count", sa.Integer(), nullable=False),
        sa.Column("revocation_epoch", sa.Integer(), nullable=False),
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("manifest_hash", sa.Text(), nullable=False),
        sa.Column("documents", sa.Integer(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("barrier", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("activated_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.kb_id"], name=op.f("fk_releases_kb_id")),
        sa.ForeignKeyConstraint(
            ["space_id"], ["embedding_spaces.space_id"], name=op.f("fk_releases_space_id")
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_releases_task_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_releases")),
        sa.UniqueConstraint("kb_revision", name=op.f("uq_releases_kb_revision")),
        sa.UniqueConstraint("release_id", name=op.f("uq_releases_release_id")),
    )
    op.create_index(op.f("ix_releases_kb_id_seq"), "releases", ["kb_id", "seq"], unique=False)
    op.create_index(op.f("ix_releases_task_id"), "releases", ["task_id"], unique=False)
    op.create_index(
        "uq_releases_active",
        "releases",
        ["kb_id"],
        unique=True,
        sqlite_where=sa.text("state = 'ACTIVE'"),
        postgresql_where=sa.text("state = 'ACTIVE'"),
    )
    op.create_table(
        "task_documents",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_task_documents_task_id")),
        sa.PrimaryKeyConstraint("task_id", "position", name=op.f("pk_task_documents")),
    )
    op.create_index(
        op.f("ix_task_documents_document_id_version"),
        "task_documents",
        ["document_id", "version"],
        unique=False,
    )
    op.create_table(
        "task_steps",
        sa.Column(
            "seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_task_steps_task_id")),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_task_steps")),
    )
    op.create_index(op.f("ix_task_steps_task_id"), "task_steps", ["task_id"], unique=False)
    op.create_table(
        "document_versions",
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("content_sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("original_key", sa.Text(), nullable=False),
        sa.Column("media_type", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("uri", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("valid_from", sa.BigInteger(), nullable=True),
        sa.Column("valid_until", sa.BigInteger(), nullable=True),
        sa.Column("sensitivity", sa.Integer(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("approval", sa.Text(), nullable=False),
        sa.Column("risk", sa.Text(), nullable=False),
        sa.Column("parser_version", sa.Text(), nullable=False),
        sa.Column("splitter_version", sa.Text(), nullable=False),
        sa.Column("chunks_key", sa.Text(), nullable=False),
        sa.Column("error_reason", sa.Text(), nullable=True),
        sa.Column("error_detail", sa.Text(), nullable=True),
        sa.Column("ready_number", sa.Integer(), nullable=True),
        sa.Column("withdrawn_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.document_id"], name=op.f("fk_document_versions_document_id")
        ),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name=op.f("fk_document_versions_task_id")),
        sa.PrimaryKeyConstraint("document_id", "version", name=op.f("pk_document_versions")),
    )
    op.create_table(
        "release_classes",
        sa.Column("kb_revision", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("passages", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kb_revision"], ["releases.kb_revision"], name=op.f("fk_release_classes_kb_revision")
        ),
        sa.PrimaryKeyConstraint("kb_revision", "acl_class", name=op.f("pk_release_classes")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "release_documents",
        sa.Column("release_id", sa.Text(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("acl_class", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.release_id"], name=op.f("fk_release_documents_release_id")
        ),
        sa.PrimaryKeyConstraint("release_id", "document_id", name=op.f("pk_release_documents")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "manifest",
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("chunk_index", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("chunk_id", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("text_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id", "version"],
            ["document_versions.document_id", "document_versions.version"],
            name=op.f("fk_manifest_document_id_version"),
        ),
        sa.PrimaryKeyConstraint("document_id", "version", "chunk_index", name=op.f("pk_manifest")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "release_terms",
        sa.Column("kb_revision", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("df", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kb_revision", "acl_class"],
            ["release_classes.kb_revision", "release_classes.acl_class"],
            name=op.f("fk_release_terms_kb_revision_acl_class"),
        ),
        sa.PrimaryKeyConstraint("kb_revision", "term", "acl_class", name=op.f("pk_release_terms")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("release_terms")
    op.drop_table("manifest")
    op.drop_table("release_documents")
    op.drop_table("release_classes")
    op.drop_table("document_versions")
    op.drop_index(op.f("ix_task_steps_task_id"), table_name="task_steps")
    op.drop_table("task_steps")
    op.drop_index(op.f("ix_task_documents_document_id_version"), table_name="task_documents")
    op.drop_table("task_documents")
    op.drop_index(
        "uq_releases_active",
        table_name="releases",
        sqlite_where=sa.text("state = 'ACTIVE'"),
        postgresql_where=sa.text("state = 'ACTIVE'"),
    )
    op.drop_index(op.f("ix_releases_task_id"), table_name="releases")
    op.drop_index(op.f("ix_releases_kb_id_seq"), table_name="releases")
    op.drop_table("releases")
    op.drop_index(op.f("ix_documents_kb_id_document_id"), table_name="documents")
    op.drop_table("documents")
    op.drop_index(
        "uq_tasks_running",
        table_name="tasks",
        sqlite_where=sa.text("state = 'RUNNING'"),
        postgresql_where=sa.text("state = 'RUNNING'"),
    )
    op.drop_index(op.f("ix_tasks_state_seq"), table_name="tasks")
    op.drop_table("tasks")
    op.drop_table("acl_classes")
    op.drop_index(
        "uq_revocations_in_force",
        table_name="revocations",
        sqlite_where=sa.text("lifted_at IS NULL"),
        postgresql_where=sa.text("lifted_at IS NULL"),
    )
    op.drop_table("revocations")
    op.drop_table("knowledge_bases")
    op.drop_table("vector_places")
    op.drop_table("tenants")
    op.drop_index(
        "ix_outbox_unsent",
        table_name="outbox",
        sqlite_where=sa.text("sent_at IS NULL"),
        postgresql_where=sa.text("sent_at IS NULL"),
    )
    op.drop_table("outbox")
    op.drop_table("meta")
    op.drop_table("idempotency")
    op.drop_table("embedding_spaces")
    op.drop_index(op.f("ix_audit_tenant_seq"), table_name="audit")
    op.drop_index(op.f("ix_audit_tenant_action_seq"), table_name="audit")
    op.drop_table("audit")
