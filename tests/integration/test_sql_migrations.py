"""The migrations make exactly the schema that the statements are written against."""

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Connection, MetaData, Table, Text, create_engine

from gateway.adapters.sql import postgres_admin
from gateway.adapters.sql.catalog import open_catalog, open_postgres
from gateway.adapters.sql.migrations import migrate
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.tables import metadata
from gateway.errors import CatalogUnavailable, ConfigurationError

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the catalog's file will be; a folder whose name configuration files could misread."""
    (tmp_path / "100%(here)s").mkdir()
    return tmp_path / "100%(here)s" / "catalog.sqlite3"


@pytest.fixture(params=["embedded", "real"])
def url(request: pytest.FixtureRequest) -> str:
    """Where an empty database is: no file yet, or one on a real server."""
    if request.param == "embedded":
        return f"sqlite:///{request.getfixturevalue('path')}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.fresh()


def _differences(url: str, expected: MetaData) -> list[object]:
    def compare(connection: Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), expected))

    if not url.startswith("sqlite"):
        return postgres_admin.run(postgres_url(url), compare)
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return compare(connection)
    finally:
        engine.dispose()


def _schema(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_migrations_and_tables_agree(url: str) -> None:
    """In columns, types, nullability, keys and indexes, compared by alembic."""
    migrate(url)
    assert _differences(url, metadata) == []


def test_the_comparison_sees_a_difference(url: str) -> None:
    """Otherwise the test before this one proves nothing."""
    migrate(url)
    grown = MetaData()
    for table in metadata.sorted_tables:
        table.to_metadata(grown)
    Table("audit", grown, Column("forgotten", Text), extend_existing=True)
    assert [difference[0] for difference in _differences(url, grown)] == ["add_column"]  # type: ignore[index] # alembic gives tuples it types as object


def test_the_tables_are_made_as_the_statements_of_the_metadata_would(path: Path, tmp_path: Path) -> None:
    """Word for word, so that WITHOUT ROWID, partial indexes and checks agree too."""
    migrate(f"sqlite:///{path}")
    engine = create_engine(f"sqlite:///{tmp_path / 'created.sqlite3'}")
    metadata.create_all(engine)
    engine.dispose()
    made = {name: _words(sql) for name, sql in _schema(path) if name != "alembic_version"}
    expected = {name: _words(sql) for name, sql in _schema(tmp_path / "created.sqlite3")}
    made.pop("sqlite_autoindex_alembic_version_1", None)
    assert made == expected


def _words(sql: str | None) -> list[str]:
    """What a statement says, in any order: constraints may be listed differently."""
    return sorted((sql or "").replace(",", " ").replace("(", " ( ").replace(")", " ) ").split())


def test_migrating_again_changes_nothing(path: Path) -> None:
    """Neither the schema nor the file's bytes."""
    migrate(f"sqlite:///{path}")
    before, content = _schema(path), path.read_bytes()
    migrate(f"sqlite:///{path}")
    assert (_schema(path), path.read_bytes()) == (before, content)


async def test_a_schema_of_a_newer_version_is_refused(path: Path) -> None:
    """Rather than written to by statements that don't know it."""
    migrate(f"sqlite:///{path}")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(ConfigurationError) as refused:
        async with open_catalog(path):
            pass
    assert refused.value.reason == "schema_unknown"


def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    """All of it is one transaction."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE release_terms (in_the_way TEXT)")
        connection.commit()
    before = _schema(path)
    with pytest.raises(CatalogUnavailable):
        migrate(f"sqlite:///{path}")
    assert _schema(path) == before


def test_a_migration_that_fails_on_a_server_leaves_nothing_behind(postgres: "PostgresServer") -> None:
    """There too all of it is one transaction."""
    url = postgres.fresh()
    name = url.rpartition("/")[2]
    postgres.sql("CREATE TABLE release_terms (in_the_way TEXT)", name)
    with pytest.raises(CatalogUnavailable):
        migrate(url)
    assert postgres.sql("SELECT relname FROM pg_stat_user_tables", name) == "release_terms"


def test_several_may_migrate_a_server_at_once(postgres: "PostgresServer") -> None:
    """One does it; the others wait and find nothing to do."""
    url = postgres.fresh()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(migrate, [url] * 4))
    assert _differences(url, metadata) == []
    migrate(url)


async def test_a_serving_process_never_migrates_a_server(postgres: "PostgresServer") -> None:
    """It refuses a schema that is missing, older or newer than its own, and changes none of them."""
    url = postgres.fresh()
    name = url.rpartition("/")[2]
    assert await _refusal(url) == "schema_not_migrated"
    assert postgres.sql("SELECT count(*) FROM pg_stat_user_tables", name) == "0"
    migrate(url)
    for version, reason in (("0001", "schema_not_migrated"), ("9999", "schema_unknown")):
        postgres.sql(f"UPDATE alembic_version SET version_num = '{version}'", name)
        assert await _refusal(url) == reason
    with pytest.raises(ConfigurationError) as refused:
        migrate(url)
    assert refused.value.reason == "schema_unknown"


async def _refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        async with open_postgres(url, connections=2, cap_s=10):
            pass
    return refused.value.reason
