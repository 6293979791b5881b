"""Term statistics by validity: what was counted before counts at any time, as it did."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_VALIDITY = ("valid_from", "valid_until")
#: "valid for ever" as the catalog writes it
_FOREVER = 253_402_300_799
#: the referenced table first
_COUNTS = {"release_classes": "passages", "release_terms": "df"}


def upgrade() -> None:
    _put_aside()
    _make(_VALIDITY)
    for table, count in _COUNTS.items():
        key = _key(table)
        op.execute(
            f"INSERT INTO {table} ({key}, valid_from, valid_until, {count}) "  # noqa: S608 -- names of ours
            f"SELECT {key}, 0, {_FOREVER}, {count} FROM {table}_before"
        )
    _forget()


def downgrade() -> None:
    _put_aside()
    _make(())
    for table, count in _COUNTS.items():
        key = _key(table)
        op.execute(
            f"INSERT INTO {table} ({key}, {count}) "  # noqa: S608 -- names of ours
            f"SELECT {key}, SUM({count}) FROM {table}_before GROUP BY {key}"
        )
    _forget()


def _key(table: str) -> str:
    return "kb_revision, acl_class" if table == "release_classes" else "kb_revision, term, acl_class"


def _put_aside() -> None:
    """A key can't be changed in place everywhere."""
    for table in _COUNTS:
        op.execute(f"CREATE TABLE {table}_before AS SELECT * FROM {table}")  # noqa: S608 -- names of ours
    for table in reversed(_COUNTS):
        op.drop_table(table)


def _forget() -> None:
    for table in _COUNTS:
        op.drop_table(f"{table}_before")


def _make(validity: tuple[str, ...]) -> None:
    op.create_table(
        "release_classes",
        sa.Column("kb_revision", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), autoincrement=False, nullable=False),
        *_dates(validity),
        sa.Column("passages", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kb_revision"], ["releases.kb_revision"], name=op.f("fk_release_classes_kb_revision")
        ),
        sa.PrimaryKeyConstraint("kb_revision", "acl_class", *validity, name=op.f("pk_release_classes")),
        sqlite_with_rowid=False,
    )
    group = ("kb_revision", "acl_class", *validity)
    op.create_table(
        "release_terms",
        sa.Column("kb_revision", sa.Text(), nullable=False),
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("acl_class", sa.Integer(), autoincrement=False, nullable=False),
        *_dates(validity),
        sa.Column("df", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            list(group),
            [f"release_classes.{name}" for name in group],
            name=op.f("_".join(("fk_release_terms", *group))),
        ),
        sa.PrimaryKeyConstraint("kb_revision", "term", "acl_class", *validity, name=op.f("pk_release_terms")),
        sqlite_with_rowid=False,
    )


def _dates(names: tuple[str, ...]) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), autoincrement=False, nullable=False) for name in names]
