"""Which versions a task made, by its id: whoever deletes a task asks, and so does the database."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_document_versions_task_id", "document_versions", ["task_id"])


def downgrade() -> None:
    op.drop_index("ix_document_versions_task_id", table_name="document_versions")
