"""Models: which model adapter a release answers with first, and which one each activation was under."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("releases", "activations"):
        op.add_column(table, sa.Column("model_adapter", sa.Text(), server_default="", nullable=False))
    op.add_column("activations", sa.Column("model_left", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("activations", "model_left")
    for table in ("activations", "releases"):
        op.drop_column(table, "model_adapter")
