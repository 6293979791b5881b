"""The journal: who is sending an entry to it, and which entries a restored catalog holds."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("outbox", sa.Column("claimed_until", sa.Double(), nullable=True))
    op.create_table(
        "journal_replays",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("replayed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "seq", name=op.f("pk_journal_replays")),
    )


def downgrade() -> None:
    op.drop_table("journal_replays")
    op.drop_column("outbox", "claimed_until")
