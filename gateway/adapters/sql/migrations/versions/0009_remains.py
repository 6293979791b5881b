"""Remains: which versions were deleted, which revisions were swept, which objects are being taken away."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_COLUMNS: dict[str, tuple[sa.Column[str] | sa.Column[float], ...]] = {
    "document_versions": (sa.Column("deleted_at", sa.Double(), nullable=True),),
    "releases": (
        sa.Column("reclaimed_at", sa.Double(), nullable=True),
        sa.Column("swept_at", sa.Double(), nullable=True),
    ),
    "revocations": (sa.Column("task_id", sa.Text(), nullable=True),),
}
#: table -> the column by which its rows are asked whether they need an object or a version
_INDEXES = {
    "document_versions": "original_key",
    "manifest": "text_hash",
    "release_documents": "document_id",
    "vector_places": "object_key",
}


_TO_CLEAN = sa.text("deleted_at IS NOT NULL AND chunks_key <> ''")


def upgrade() -> None:
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.add_column(table, column)
    for table, indexed in _INDEXES.items():
        op.create_index(f"ix_{table}_{indexed}", table, [indexed])
    op.create_index(
        "ix_document_versions_to_clean",
        "document_versions",
        ["document_id"],
        sqlite_where=_TO_CLEAN,
        postgresql_where=_TO_CLEAN,
    )
    op.create_table(
        "condemned",
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("object_key", name=op.f("pk_condemned")),
    )
    op.execute(
        "UPDATE document_versions SET deleted_at = "
        "(SELECT d.deleted_at FROM documents d WHERE d.document_id = document_versions.document_id)"
    )


def downgrade() -> None:
    op.drop_table("condemned")
    op.drop_index(
        "ix_document_versions_to_clean",
        table_name="document_versions",
        sqlite_where=_TO_CLEAN,
        postgresql_where=_TO_CLEAN,
    )
    for table, indexed in _INDEXES.items():
        op.drop_index(f"ix_{table}_{indexed}", table_name=table)
    for table, columns in _COLUMNS.items():
        for column in columns:
            op.drop_column(table, column.name)
