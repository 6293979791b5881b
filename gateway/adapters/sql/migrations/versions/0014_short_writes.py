"""For short writes: versions are found by their task, and a knowledge base counts the judged ones.

Whoever deletes a task asks for its versions, and so does the database.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "knowledge_bases", sa.Column("judged_count", sa.Integer(), server_default="0", nullable=False)
    )
    op.create_index("ix_document_versions_task_id", "document_versions", ["task_id"])


def downgrade() -> None:
    op.drop_index("ix_document_versions_task_id", table_name="document_versions")
    op.drop_column("knowledge_bases", "judged_count")
