"""Tasks that rest after trouble, are about one document and report; who approved; since when retired."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, tuple[sa.Column[str] | sa.Column[float] | sa.Column[int], ...]] = {
    "tasks": (
        sa.Column("target", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.Column("put_offs", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("claimed_at", sa.Double(), nullable=True),
    ),
    "document_versions": (
        sa.Column("approved_by", sa.Text(), nullable=True),
        sa.Column("approved_at", sa.Double(), nullable=True),
    ),
    "releases": (sa.Column("retired_at", sa.Double(), nullable=True),),
}


def upgrade() -> None:
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.add_column(table, column)
    for indexed in ("seq", "claimed_at"):
        op.create_index(f"ix_tasks_tenant_{indexed}", "tasks", ["tenant", indexed])
    # as near as it can be known: a rollback window is counted from here on
    op.execute("UPDATE releases SET retired_at = activated_at WHERE state = 'RETIRED'")


def downgrade() -> None:
    for indexed in ("seq", "claimed_at"):
        op.drop_index(f"ix_tasks_tenant_{indexed}", "tasks")
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.drop_column(table, column.name)
