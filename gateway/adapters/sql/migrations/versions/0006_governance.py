"""Governance: versions that wait for a person's word, and rows that are being moved to another ACL class."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, tuple[sa.Column[bool] | sa.Column[str] | sa.Column[int], ...]] = {
    "document_versions": (
        sa.Column("high_risk", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("approval_note", sa.Text(), nullable=True),
    ),
    "release_documents": (
        sa.Column("moving", sa.Integer(), nullable=True),
        sa.Column("approval", sa.Text(), nullable=False, server_default="unreviewed"),
    ),
}


def upgrade() -> None:
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.add_column(table, column)


def downgrade() -> None:
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.drop_column(table, column.name)
