"""Traces: what was searched for whom, and which passages that quotes."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "traces",
        sa.Column("seq", _SERIAL, autoincrement=True, nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_traces")),
        sa.UniqueConstraint("trace_id", name=op.f("uq_traces_trace_id")),
    )
    op.create_index(op.f("ix_traces_tenant_request_id"), "traces", ["tenant", "request_id"])
    op.create_index(op.f("ix_traces_tenant_subject"), "traces", ["tenant", "subject"])
    op.create_index(op.f("ix_traces_at"), "traces", ["at"])
    op.create_table(
        "trace_passages",
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("n", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("trace_id", "n", name=op.f("pk_trace_passages")),
    )
    op.create_index(op.f("ix_trace_passages_document_id"), "trace_passages", ["document_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_trace_passages_document_id"), table_name="trace_passages")
    op.drop_table("trace_passages")
    for index in ("at", "tenant_subject", "tenant_request_id"):
        op.drop_index(op.f(f"ix_traces_{index}"), table_name="traces")
    op.drop_table("traces")
