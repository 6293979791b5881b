"""Migrations: the schema's history, run from code; no configuration file and no working directory."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, make_url

from gateway.adapters.sql.database import translated_errors, writing_engine
from gateway.errors import ConfigurationError


def migrate(url: str | URL) -> None:
    """Brings the database at ``url`` (SQLAlchemy's form) to the newest schema, all or nothing.

    Raises ConfigurationError ``schema_unknown`` for a schema of another version of this program,
    CatalogUnavailable.
    """
    engine = _engine(url)
    try:
        with translated_errors(), engine.begin() as connection:
            if not _is_newest(connection):
                command.upgrade(_config(connection), "head")
    except CommandError as error:
        raise ConfigurationError(
            "schema_unknown", "another version of this program has written this database"
        ) from error
    finally:
        engine.dispose()


def _engine(url: str | URL) -> Engine:
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return writing_engine(Path(parsed.database))
    return create_engine(parsed, hide_parameters=True)


def _config(connection: Connection) -> Config:
    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _is_newest(connection: Connection) -> bool:
    heads = ScriptDirectory.from_config(_config(connection)).get_heads()
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads)
