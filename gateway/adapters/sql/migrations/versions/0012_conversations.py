"""Conversations: who asked what before, and the documents without which a turn isn't used."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OF_A_CONVERSATION = ("tenant", "subject", "kb_id", "conversation_id")
_INDEX = f"ix_turns_{'_'.join(_OF_A_CONVERSATION)}"


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("turn_id", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _OF_A_CONVERSATION),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_turns")),
        sa.UniqueConstraint("turn_id", name=op.f("uq_turns_turn_id")),
    )
    op.create_index(op.f(_INDEX), "turns", list(_OF_A_CONVERSATION))
    op.create_index(op.f("ix_turns_at"), "turns", ["at"])
    op.create_table(
        "turn_documents",
        sa.Column("turn_id", sa.Text(), nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("turn_id", "document_id", "version", name=op.f("pk_turn_documents")),
    )
    op.create_index(op.f("ix_turn_documents_document_id"), "turn_documents", ["document_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_turn_documents_document_id"), table_name="turn_documents")
    op.drop_table("turn_documents")
    op.drop_index(op.f("ix_turns_at"), table_name="turns")
    op.drop_index(op.f(_INDEX), table_name="turns")
    op.drop_table("turns")
