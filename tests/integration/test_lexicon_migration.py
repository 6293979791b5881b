"""Term statistics of before validity was counted: kept, and counted at any time."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Table, create_engine, insert, inspect, text

from gateway.adapters.sql import migrations, postgres_admin
from gateway.adapters.sql.lexicon_tables import release_classes, release_terms
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.tables import (
    embedding_spaces,
    knowledge_bases,
    releases,
    tasks,
    tenants,
)
from gateway.retrieval.lexicon import ALWAYS

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

Run = Callable[[Callable[[Connection], None]], None]
BEFORE, AFTER = "0012", "0013"


@pytest.fixture(params=["embedded", "real"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Does something in a transaction on an empty database."""
    if request.param == "real":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = postgres_url(server.fresh())
        return lambda act: postgres_admin.run(url, act)

    def on_file(act: Callable[[Connection], None]) -> None:
        engine = create_engine(f"sqlite:///{tmp_path / 'catalog.sqlite3'}")
        try:
            with engine.begin() as connection:
                act(connection)
        finally:
            engine.dispose()

    return on_file


def _config(connection: Connection) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


def _add(connection: Connection, table: Table, **given: object) -> None:
    """A row with something in every column that must have it, of those there were by then."""
    there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    needed = [column for column in table.columns if column.name in there and not column.nullable]
    blanks = {column.name: column.type.python_type() for column in needed}
    connection.execute(insert(table), blanks | given)


def _fill(connection: Connection) -> None:
    """A release that counts two classes, as it was written before."""
    command.upgrade(_config(connection), BEFORE)
    _add(connection, tenants, tenant="acme")
    _add(connection, knowledge_bases, kb_id="kb", tenant="acme")
    _add(connection, tasks, task_id="task", kb_id="kb", tenant="acme")
    _add(connection, embedding_spaces, space_id="space")
    _add(connection, releases, kb_revision="rev", kb_id="kb", task_id="task", space_id="space")
    connection.execute(text("INSERT INTO release_classes VALUES ('rev', 1, 10), ('rev', 2, 5)"))
    connection.execute(text("INSERT INTO release_terms VALUES ('rev', 'word', 1, 4), ('rev', 'word', 2, 1)"))


def _rows(connection: Connection, table: Table) -> list[tuple[object, ...]]:
    return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table.name} ORDER BY acl_class"))]


def _there_and_back(connection: Connection) -> None:
    _fill(connection)
    before = [_rows(connection, table) for table in (release_classes, release_terms)]
    command.upgrade(_config(connection), AFTER)
    always = (ALWAYS.valid_from, ALWAYS.valid_until)
    terms = [("rev", "word", 1, *always, 4), ("rev", "word", 2, *always, 1)]
    assert _rows(connection, release_classes) == [("rev", 1, *always, 10), ("rev", 2, *always, 5)]
    assert _rows(connection, release_terms) == terms
    command.downgrade(_config(connection), BEFORE)
    assert [_rows(connection, table) for table in (release_classes, release_terms)] == before


def test_what_was_counted_before_counts_at_any_time(
    run: Callable[[Callable[[Connection], None]], None],
) -> None:
    """Until the next release is built; and the way back sums it up again."""
    run(_there_and_back)
