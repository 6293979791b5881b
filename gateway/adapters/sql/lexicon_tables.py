"""Tables of term statistics: what a release counts, by ACL class and validity."""

from sqlalchemy import BigInteger, Column, ForeignKey, ForeignKeyConstraint, Integer, Table

from gateway.adapters.sql.columns import metadata, number, words

release_classes = Table(
    "release_classes",
    metadata,
    words("kb_revision", ForeignKey("releases.kb_revision"), primary_key=True),
    Column("acl_class", Integer, primary_key=True, autoincrement=False),
    Column("valid_from", BigInteger, primary_key=True, autoincrement=False),
    Column("valid_until", BigInteger, primary_key=True, autoincrement=False),
    number("passages"),
    sqlite_with_rowid=False,
)

release_terms = Table(
    "release_terms",
    metadata,
    words("kb_revision", primary_key=True),
    words("term", primary_key=True),
    Column("acl_class", Integer, primary_key=True, autoincrement=False),
    Column("valid_from", BigInteger, primary_key=True, autoincrement=False),
    Column("valid_until", BigInteger, primary_key=True, autoincrement=False),
    number("df"),
    ForeignKeyConstraint(
        ["kb_revision", "acl_class", "valid_from", "valid_until"],
        [f"release_classes.{key}" for key in ("kb_revision", "acl_class", "valid_from", "valid_until")],
    ),
    sqlite_with_rowid=False,
)
