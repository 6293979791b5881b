"""The account a gateway runs as: it gets rows and nothing else, and says so when it has more."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import URL

from gateway.adapters.sql.catalog import open_postgres
from gateway.adapters.sql.postgres_admin import grant_runtime
from gateway.adapters.sql.postgres_engine import postgres_url
from gateway.errors import ConfigurationError
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import Clock, World, upload

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

_HOSTILE = 'run"time; DROP TABLE audit; --'


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _as(url: str, account: str) -> str:
    return postgres_url(url).set(username=account).render_as_string(hide_password=False)


def _database(url: str) -> str:
    return url.rpartition("/")[2]


async def _excess(url: str, account: str) -> list[str]:
    async with open_postgres(_as(url, account), connections=2, cap_s=10) as catalog:
        return await catalog.excess_privileges()


@pytest.fixture
def account(postgres: "PostgresServer") -> str:
    """A login that may do nothing yet; its name has to be quoted well."""
    if not _exists(postgres):
        postgres.sql(f"CREATE ROLE {_quoted(_HOSTILE)} LOGIN")
    return _HOSTILE


def _exists(postgres: "PostgresServer") -> bool:
    return _HOSTILE in postgres.sql("SELECT rolname FROM pg_roles").splitlines()


async def test_the_runtime_account_can_run_a_gateway_and_is_fit_for_production(
    postgres: "PostgresServer", account: str
) -> None:
    """Granting twice is granting once; the whole story of a release works under it."""
    url = postgres.migrated()
    for _ in range(2):
        await asyncio.to_thread(grant_runtime, url, account)
    clock = Clock()
    async with open_postgres(_as(url, account), connections=2, cap_s=10, clock=clock) as catalog:
        world = World(catalog, clock)
        await world.import_ready(upload("a"))
        await world.release()
        await catalog.revoke("acme", RevocationKind.USER, "ann", "left", "admin")
        assert await catalog.active_spaces() == {"test-space"}
        assert await catalog.excess_privileges() == []


async def test_the_runtime_account_gets_rows_and_sequences_only(
    postgres: "PostgresServer", account: str
) -> None:
    """Of our tables alone; of the audit trail only new rows, of the version only the reading."""
    url = postgres.migrated()
    name = _database(url)
    postgres.sql(f"GRANT TRUNCATE ON audit TO {_quoted(account)}", name)  # from an earlier time
    postgres.sql("CREATE TABLE others (seq bigserial)", name)
    for _ in range(2):
        await asyncio.to_thread(grant_runtime, url, account)
    granted = (
        "SELECT table_name, string_agg(privilege_type, ' ' ORDER BY privilege_type) "
        "FROM information_schema.role_table_grants WHERE grantee <> 'owner' "
        "AND table_schema = 'public' GROUP BY table_name"
    )
    tables = dict(line.split("|") for line in postgres.sql(granted, name).splitlines())
    assert tables.pop("alembic_version") == "SELECT"
    assert {tables.pop("audit"), tables.pop("task_steps")} == {"INSERT SELECT"}
    assert "tasks" in tables
    assert "others" not in tables
    assert set(tables.values()) == {"DELETE INSERT SELECT UPDATE"}
    for sequence, granted in (("tasks_seq_seq", "t"), ("audit_seq_seq", "t"), ("others_seq_seq", "f")):
        asked = f"SELECT has_sequence_privilege('{account}', '{sequence}', 'USAGE')"
        assert postgres.sql(asked, name) == granted


async def test_what_an_account_could_do_too_much_is_told(postgres: "PostgresServer", account: str) -> None:
    """Each of it alone; the owner of the tables is no runtime account."""
    url = postgres.migrated()
    name, role = _database(url), _quoted(account)
    await asyncio.to_thread(grant_runtime, url, account)
    assert await _excess(url, "owner") == ["it is a superuser, or may become one"]
    postgres.sql(f"GRANT CREATE ON SCHEMA public TO {role}", name)
    assert await _excess(url, account) == ["it may create tables in the schema"]
    postgres.sql(
        f"REVOKE CREATE ON SCHEMA public FROM {role}; GRANT CREATE ON DATABASE {name} TO {role}", name
    )
    assert await _excess(url, account) == ["it may create schemas in the database"]
    postgres.sql(f"REVOKE CREATE ON DATABASE {name} FROM {role}; ALTER TABLE audit OWNER TO {role}", name)
    assert await _excess(url, account) == ["it owns the table audit"]
    postgres.sql(
        f"CREATE ROLE table_owner; ALTER TABLE audit OWNER TO table_owner; GRANT table_owner TO {role}", name
    )
    await asyncio.to_thread(grant_runtime, url, account)
    assert await _excess(url, account) == ["it owns the table audit"]
    postgres.sql("ALTER TABLE audit OWNER TO owner; DROP ROLE table_owner", name)
    assert await _excess(url, account) == []


def test_an_account_that_is_not_there_is_a_configuration_error(postgres: "PostgresServer") -> None:
    """Nobody else gets its rights: not PUBLIC either."""
    for name in ("nobody at all", "public", ""):
        with pytest.raises(ConfigurationError) as refused:
            grant_runtime(postgres.migrated(), name)
        assert refused.value.reason == "account_unknown"


def test_a_password_stays_out_of_a_url_that_is_shown() -> None:
    """SQLAlchemy's URL hides it; ours is one."""
    shown: URL = postgres_url("postgresql://ann:hidden@host/db")
    assert "hidden" not in f"{shown} {shown!r}"
