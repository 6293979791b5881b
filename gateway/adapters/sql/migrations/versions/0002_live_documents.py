"""An index of live documents by ACL class: which classes a knowledge base still uses."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "ix_documents_live",
        "documents",
        ["kb_id", "acl_class"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
    # Readers keep classes by this revision, and from here on fewer of them count.
    op.execute(sa.text("UPDATE knowledge_bases SET acl_revision = acl_revision + 1"))


def downgrade() -> None:
    op.drop_index(
        "ix_documents_live",
        table_name="documents",
        sqlite_where=sa.text("deleted_at IS NULL"),
        postgresql_where=sa.text("deleted_at IS NULL"),
    )
