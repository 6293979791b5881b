"""Spaces and releases: which task embedded a text, and which retrieval config each activation was under."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("vector_places", sa.Column("made_by", sa.Text(), nullable=True))
    op.create_table(
        "activations",
        sa.Column("kb_id", sa.Text(), nullable=False),
        sa.Column("sequence", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("release_id", sa.Text(), nullable=False),
        sa.Column("space_id", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("config_left", sa.Text(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.kb_id"], name=op.f("fk_activations_kb_id")),
        sa.PrimaryKeyConstraint("kb_id", "sequence", name=op.f("pk_activations")),
        sqlite_with_rowid=False,
    )
    # as far as it is known: each release's last activation
    op.execute(
        "INSERT INTO activations (kb_id, sequence, release_id, space_id, config, at) "
        "SELECT kb_id, sequence, release_id, space_id, config, activated_at "
        "FROM releases WHERE sequence IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_table("activations")
    op.drop_column("vector_places", "made_by")
