"""Migrating: from nothing to an installation that serves, the same however often, and clear when it can't."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest

from gateway.adapters.redis.quota import RedisQuota
from gateway.adapters.redis.terms import QuotaTerms
from gateway.adapters.sql.catalog import open_postgres
from gateway.admission.quota import QuotaLimits
from gateway.bootstrap.migrating import migrate_parts
from gateway.errors import ConfigurationError, GatewayError, QuotaUnavailable
from tests.contract.catalog_world import Clock, World, upload
from tests.harness.process import run_command
from tests.harness.sides import settings_of
from tests.integration.production_world import (
    OWNER,
    PASSWORDS,
    RUNTIME,
    Installation,
    assert_no_secret,
    installation,
)

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

ACCOUNT = ("gateway", PASSWORDS["milvus"])


@pytest.fixture
def installed(
    postgres: "PostgresServer", guarded_milvus: "MilvusServer", redis: "RedisServer", s3: "S3Server"
) -> Iterator[Installation]:
    """Accounts and an empty database of this test."""
    with installation(postgres, guarded_milvus, redis, s3) as found:
        yield found


async def migrated(environment: Mapping[str, str], *, both: bool = True) -> list[str]:
    """What it says."""
    said: list[str] = []
    accounts: dict[str, Any] = {"runtime_account": RUNTIME, "milvus_account": ACCOUNT} if both else {}
    await migrate_parts(settings_of(environment), said.append, **accounts)
    assert_no_secret("\n".join(said))
    return said


def schema_of(installed: Installation) -> str:
    """Everything that a migration could have changed in the database."""
    sql = installed.servers.postgres.sql
    columns = "SELECT table_name, column_name, data_type, column_default FROM information_schema.columns"
    grants = "SELECT grantee, table_name, privilege_type FROM information_schema.role_table_grants"
    where = "WHERE table_schema = 'public' ORDER BY 1, 2, 3"
    asked = (f"{columns} {where}", f"{grants} {where}", "SELECT * FROM alembic_version", "SELECT * FROM meta")
    return "\n".join(sql(one, installed.database) for one in asked)


async def test_from_nothing_to_ready_and_twice_is_once(installed: Installation) -> None:
    """Schema, collection, both accounts, an open Redis; the second run says and changes nothing new."""
    first = await migrated(installed.owner)
    before = schema_of(installed)
    second = await migrated(installed.owner)
    assert [line.partition(":")[0] for line in first] == [
        *("catalog", "catalog", "vector store", "vector store", "quota")
    ]
    assert first[-1].endswith(", opened")
    assert second == [*first[:-1], first[-1].replace(", opened", ", left as it is")]
    assert schema_of(installed) == before


async def test_two_at_once_do_each_other_no_harm(installed: Installation) -> None:
    """A new schema, a new collection and a new account, made by both."""
    environment = {**installed.owner, "GATEWAY_EMBEDDING_NAME": "made-by-two"}
    account = ("made_by_two", PASSWORDS["milvus"])
    settings, said = settings_of(environment), [list[str](), list[str]()]

    async def migrate(lines: list[str]) -> None:
        await migrate_parts(settings, lines.append, runtime_account=RUNTIME, milvus_account=account)

    async with anyio.create_task_group() as tasks:
        for lines in said:
            tasks.start_soon(migrate, lines)
    assert said[0][:-1] == said[1][:-1]
    assert sorted(lines[-1].rpartition(", ")[2] for lines in said) == ["left as it is", "opened"]


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE more (x int)", "DROP TABLE audit", "ALTER TABLE audit ADD x int", "TRUNCATE audit"],
)
async def test_the_runtime_account_changes_no_schema(installed: Installation, statement: str) -> None:
    """Rows are its business, tables aren't."""
    await migrated(installed.owner)
    connection = await asyncpg.connect(installed.database_url(RUNTIME))
    try:
        await connection.execute("SELECT count(*) FROM audit")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement)
    finally:
        await connection.close()


REFUSALS: dict[str, tuple[Callable[[Installation], Mapping[str, str]], str, str]] = {
    "password": (
        lambda i: {"GATEWAY_DATABASE_URL": i.database_url(OWNER, "wrong")},
        "catalog_unavailable",
        "InvalidPasswordError",
    ),
    "database": (
        lambda i: {"GATEWAY_DATABASE_URL": i.database_url(OWNER) + "_missing"},
        "catalog_unavailable",
        "InvalidCatalogNameError",
    ),
    "address": (
        lambda i: {"GATEWAY_DATABASE_URL": f"postgresql://{OWNER}:owner-secret@127.0.0.1:1/d"},
        "catalog_unavailable",
        "ConnectionRefusedError",
    ),
    "url": (
        lambda i: {"GATEWAY_DATABASE_URL": "mysql://owner-secret@h/d"},
        "database_url_invalid",
        "postgresql://account:password@host",
    ),
    "token": (
        lambda i: {"GATEWAY_MILVUS_TOKEN": "root:wrong"},
        "vector_store_unavailable",
        "GATEWAY_MILVUS_URI and _TOKEN",
    ),
    "redis": (
        lambda i: {"GATEWAY_REDIS_URL": "redis://:owner-secret@127.0.0.1:1"},
        "quota_unavailable",
        "",
    ),
}


async def refusal_of(migrate: Callable[[], Awaitable[object]]) -> tuple[str, str]:
    """The stable code and the line's text."""
    with pytest.raises(GatewayError) as refused:
        await migrate()
    error = refused.value
    assert_no_secret(f"{error} {error.detail}")
    code = error.reason if isinstance(error, ConfigurationError) else error.code
    return code, error.detail or error.title


@pytest.mark.parametrize("wrong", REFUSALS)
async def test_what_is_wrong_is_told_at_once(installed: Installation, wrong: str) -> None:
    """A stable code and what to look at; nothing that was given is repeated."""
    changes, expected, hint = REFUSALS[wrong]
    environment = {**installed.owner, **changes(installed)}
    code, text = await refusal_of(lambda: migrated(environment, both=False))
    assert code == expected
    assert hint in text


async def test_accounts_that_can_not_be_let_in_are_refused(installed: Installation) -> None:
    """A role that isn't there; an account of Milvus that has another password, or rights of its own."""
    settings = settings_of(installed.owner)

    async def migrate(**accounts: Any) -> None:
        await migrate_parts(settings, lambda _said: None, **accounts)

    assert (await refusal_of(lambda: migrate(runtime_account="nobody")))[0] == "account_unknown"
    await migrate(milvus_account=ACCOUNT)
    code, text = await refusal_of(lambda: migrate(milvus_account=("gateway", "another-secret")))
    assert (code, "gateway" in text) == ("account_password_differs", True)
    code, text = await refusal_of(lambda: migrate(milvus_account=("root", "Milvus")))
    assert code == "account_too_powerful"


@pytest.mark.soak
async def test_only_a_new_installation_opens_its_redis(installed: Installation) -> None:
    """With a release active, answers may be running: another Redis stays closed until they are over."""
    await migrated(installed.owner)
    async with open_postgres(installed.database_url(RUNTIME), connections=2, cap_s=10) as catalog:
        world = World(catalog, Clock())
        await world.import_ready(upload("a"))
        await world.release()
    another = installed.servers.redis.fresh()
    said = await migrated({**installed.owner, "GATEWAY_REDIS_URL": another})
    assert said[-1].endswith(", left as it is")
    terms = QuotaTerms(tenant=QuotaLimits(1), lease_s=60, total_cap_s=60)
    quota = RedisQuota(another, terms, "a test", 2000)
    try:
        with pytest.raises(QuotaUnavailable):
            await quota.ping()
    finally:
        await quota.aclose()


@pytest.mark.soak
async def test_the_command_says_one_line(installed: Installation) -> None:
    """Exit 1 and the code for a part that doesn't let it in; exit 2 for a password that Milvus can't have."""
    wrong = {"GATEWAY_DATABASE_URL": installed.database_url(OWNER, "wrong-secret")}
    refusal = await run_command("migrate", env={**installed.owner, **wrong})
    assert (refusal.code, refusal.out) == (1, "")
    (line,) = refusal.err.splitlines()
    assert line.startswith("catalog_unavailable: ")
    assert "secret" not in line
    short = {**installed.owner, "GATEWAY_MILVUS_ACCOUNT_PASSWORD": "short"}
    refusal = await run_command("migrate", "--milvus-account", "gateway", env=short)
    assert refusal.code == 2
    assert refusal.err.startswith("GATEWAY_MILVUS_ACCOUNT_PASSWORD: ")
    assert len(refusal.err.splitlines()) == 1
