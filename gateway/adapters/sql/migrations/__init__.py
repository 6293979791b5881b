"""Migrations: the schema's history, run from code; no configuration file and no working directory."""

import functools
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, make_url

from gateway.adapters.sql import postgres_admin
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.adapters.sql.sqlite import translated_errors, writing_engine
from gateway.errors import ConfigurationError


def migrate(url: str | URL) -> None:
    """Brings the database at ``url`` (SQLAlchemy's form) to the newest schema, all or nothing.

    Two at once are fine: the second waits and finds nothing to do. Blocks; call it from a thread.
    Raises ConfigurationError (``schema_unknown`` for a schema of another version of this program,
    ``database_url_invalid``), CatalogUnavailable.
    """
    text = url if isinstance(url, str) else url.render_as_string(hide_password=False)
    try:
        if text.startswith("sqlite"):
            _migrate_file(Path(make_url(text).database or ""))
        else:
            postgres_admin.run(postgres_url(text), _migrate_in_turn)
    except CommandError as error:
        raise _unknown() from error


def _migrate_file(path: Path) -> None:
    engine = writing_engine(path)
    try:
        with translated_errors(), engine.begin() as connection:
            _upgrade(connection)
    finally:
        engine.dispose()


def _migrate_in_turn(connection: Connection) -> None:
    postgres_admin.in_turn(connection)
    _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    if _revisions(connection) != _newest():
        command.upgrade(_config(connection), "head")


def check_schema(connection: Connection) -> None:
    """For a process that must not migrate. Raises ConfigurationError: ``schema_not_migrated`` when the
    schema is missing or older than this program, ``schema_unknown`` when it is another's.
    """
    found = _revisions(connection)
    if found == _newest():
        return
    if found <= {script.revision for script in _scripts().walk_revisions()}:
        raise ConfigurationError(
            "schema_not_migrated", "the database hasn't the newest schema; run `qa-gateway migrate` first"
        )
    raise _unknown()


def schema_of(connection: Connection) -> str:
    """The name of the schema it has, such as ``0007``; empty before the first migration."""
    return "+".join(sorted(_revisions(connection)))


def _unknown() -> ConfigurationError:
    return ConfigurationError("schema_unknown", "another version of this program has written this database")


def _revisions(connection: Connection) -> set[str]:
    return set(MigrationContext.configure(connection).get_current_heads())


@functools.cache
def _newest() -> set[str]:
    return set(_scripts().get_heads())


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config(connection: Connection | None = None) -> Config:
    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
