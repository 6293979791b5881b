"""The doctor: each finding has a real cause, one part's trouble hides no other's, and no secret is told."""

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis as redis_client

from gateway.adapters.sql.catalog import open_postgres
from gateway.bootstrap.doctor import Finding, Verdict, examine
from gateway.bootstrap.migrating import migrate_parts
from gateway.bootstrap.opening import open_services
from gateway.errors import ConfigurationError
from tests.contract.catalog_world import Clock, World, upload
from tests.harness.issuer import serving_issuer
from tests.harness.process import gateway_process, run_command
from tests.harness.sides import AUDIENCE, embedding_endpoint, settings_of
from tests.integration.production_world import PEPPER, assert_no_secret, environ

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

#: nobody listens there
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def outside() -> Iterator[dict[str, str]]:
    """An issuer and models."""
    with serving_issuer() as issuer, embedding_endpoint() as models:
        yield {
            "GATEWAY_OIDC_ISSUER": issuer.url,
            "GATEWAY_OIDC_AUDIENCE": AUDIENCE,
            "GATEWAY_EMBEDDING_BASE_URL": models,
            "GATEWAY_EMBEDDING_NAME": "wordllama-l2-supercat",
            "GATEWAY_EMBEDDING_DIMENSION": "256",
            "GATEWAY_MODEL_BASE_URL": models,
            "GATEWAY_MODEL_NAME": "stub",
            "GATEWAY_MODEL_API_KEY": "owner-secret",
        }


@pytest.fixture
async def healthy(
    postgres: "PostgresServer",
    milvus: "MilvusServer",
    redis: "RedisServer",
    s3: "S3Server",
    outside: dict[str, str],
    tmp_path: Path,
) -> AsyncIterator[dict[str, str]]:
    """A migrated installation on servers, in development: their accounts are the owners'."""
    environment = {
        **outside,
        **s3.environment,
        "GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "GATEWAY_DATABASE_URL": postgres.migrated(),
        "GATEWAY_MILVUS_URI": milvus.uri,
        "GATEWAY_REDIS_URL": redis.fresh(),
        "GATEWAY_OBJECT_STORE_URL": s3.fresh_bucket(),
        "GATEWAY_JOURNAL_URL": s3.fresh_bucket(),
        "GATEWAY_API_KEY_PEPPER": PEPPER,
        "GATEWAY_CATALOG_CAP_MS": "5000",
    }
    await migrate_parts(settings_of(environment), lambda _said: None)
    with environ(s3.environment):
        yield environment


async def findings(environment: Mapping[str, str]) -> list[Finding]:
    found = await examine(settings_of(environment))
    assert_no_secret("\n".join(f"{one.detail} {one.advice}" for one in found))
    assert all(one.advice for one in found if one.code not in SELF_EXPLAINING)
    return found


SELF_EXPLAINING = {
    *("ok", "settings_incomplete", "polls_too_seldom", "quota_too_small", "quota_lease_too_short"),
    *("moderation_is_off", "answer_cache_key"),
    *("production_needs_servers", "workers_need_servers"),
}


def complaints(found: list[Finding]) -> set[tuple[str, str, str]]:
    return {(one.part, one.verdict.value, one.code) for one in found if one.verdict is not Verdict.OK}


OPEN_MILVUS = ("vector_store", "warning", "account_too_powerful")
SUPERUSER = ("catalog", "warning", "account_too_powerful")
BOTH = {OPEN_MILVUS, SUPERUSER}


async def test_servers_that_are_well_are_named_with_their_versions(healthy: dict[str, str]) -> None:
    """All there is to say in development is that the accounts are the owners'."""
    found = await findings(healthy)
    assert complaints(found) == BOTH
    told = " ".join(one.detail for one in found)
    for name in ("qa-gateway 0.", "Python 3.", "PostgreSQL 1", "Milvus v2.", "Redis ", "wordllama-256-v1"):
        assert name in told
    assert {one.part for one in found} == {
        *("settings", "catalog", "embedder", "reranker", "vector_store", "object_store"),
        *("journal", "quota", "answers", "identity", "model"),
    }
    assert not Path(healthy["GATEWAY_DATA_DIR"]).exists(), "looking makes nothing"


async def test_every_part_that_is_down_is_named(healthy: dict[str, str]) -> None:
    """All at once: none hides another."""
    down = {
        "GATEWAY_DATABASE_URL": f"postgresql://owner:owner-secret@{NOWHERE}/d",
        "GATEWAY_MILVUS_URI": f"http://{NOWHERE}",
        "GATEWAY_REDIS_URL": f"redis://:owner-secret@{NOWHERE}",
        "GATEWAY_OIDC_ISSUER": f"http://{NOWHERE}",
        "GATEWAY_EMBEDDING_BASE_URL": f"http://{NOWHERE}/v1",
        "GATEWAY_MODEL_BASE_URL": f"http://{NOWHERE}/v1",
        "GATEWAY_OBJECT_STORE_URL": "s3://no-such-bucket",
        "GATEWAY_JOURNAL_URL": "s3://no-such-bucket",
        "GATEWAY_RERANK_URL": f"http://{NOWHERE}/rerank",
        "GATEWAY_RERANK_NAME": "judge",
        "GATEWAY_RERANK_API_KEY": "owner-secret",
    }
    assert complaints(await findings({**healthy, **down})) == {
        ("catalog", "failed", "catalog_unavailable"),
        ("embedder", "failed", "embedder_unavailable"),
        ("reranker", "warning", "reranker_unavailable"),
        ("reranker", "warning", "reranker_not_calibrated"),
        ("vector_store", "failed", "vector_store_unavailable"),
        ("object_store", "failed", "object_store_unavailable"),
        ("journal", "failed", "journal_unavailable"),
        ("quota", "failed", "quota_unavailable"),
        ("identity", "failed", "identity_unavailable"),
        ("model", "failed", "model_unavailable"),
    }


async def test_a_schema_that_is_behind(healthy: dict[str, str], postgres: "PostgresServer") -> None:
    """An empty database is as far behind as one can be."""
    found = await findings({**healthy, "GATEWAY_DATABASE_URL": postgres.fresh()})
    assert complaints(found) == {("catalog", "failed", "schema_not_migrated"), OPEN_MILVUS}


async def test_clocks_that_differ(healthy: dict[str, str], postgres: "PostgresServer") -> None:
    """The database's clock is 90 s ahead: by a function of its own in front of the built-in one."""
    name = healthy["GATEWAY_DATABASE_URL"].rpartition("/")[2]
    postgres.sql(
        "CREATE SCHEMA skewed; CREATE FUNCTION skewed.clock_timestamp() RETURNS timestamptz LANGUAGE sql "
        "AS $$ SELECT pg_catalog.clock_timestamp() + interval '90 s' $$; "
        f"ALTER DATABASE {name} SET search_path = public, skewed, pg_catalog",
        name,
    )
    found = await findings(healthy)
    assert complaints(found) == {("catalog", "failed", "clock_skew"), *BOTH}
    (skew,) = [one.detail for one in found if one.code == "clock_skew"]
    assert "+90." in skew or "+89." in skew


async def test_production_refuses_what_the_doctor_finds(healthy: dict[str, str]) -> None:
    """Accounts that may do anything: a warning in development, a failure in production, where no start
    accepts a Milvus without authorization.
    """
    production = {**healthy, "GATEWAY_ENV": "production"}
    found = await findings(production)
    assert complaints(found) == {(part, "failed", code) for part, _, code in BOTH}
    with pytest.raises(ConfigurationError, match="it is a superuser"):
        async with open_services(settings_of(production)):
            pass


async def test_a_milvus_without_authorization_is_refused_in_production(
    healthy: dict[str, str], postgres: "PostgresServer"
) -> None:
    """The reason says what is wrong with it; the database's account is a fit one."""
    name = healthy["GATEWAY_DATABASE_URL"].rpartition("/")[2]
    if "fit" not in postgres.sql("SELECT rolname FROM pg_roles").splitlines():
        postgres.sql("CREATE ROLE fit LOGIN")
    await migrate_parts(settings_of(healthy), lambda _said: None, runtime_account="fit")
    fit = {"GATEWAY_ENV": "production", "GATEWAY_DATABASE_URL": postgres.url_of(name, "fit")}
    with pytest.raises(ConfigurationError, match=r"vector store's account .* no authorization") as refused:
        async with open_services(settings_of({**healthy, **fit})):
            pass
    assert refused.value.reason == "account_too_powerful"


async def test_another_embedder_than_the_released_one(healthy: dict[str, str]) -> None:
    """Its collection is missing, its gate has no thresholds, and an active release can't be asked with it."""
    async with open_postgres(healthy["GATEWAY_DATABASE_URL"], connections=2, cap_s=10) as catalog:
        world = World(catalog, Clock())
        await world.import_ready(upload("a"))
        await world.release()
    found = await findings({**healthy, "GATEWAY_EMBEDDING_NAME": "never-made"})
    assert complaints(found) == {
        ("embedder", "warning", "not_calibrated"),
        ("embedder", "failed", "embedding_space_mismatch"),
        ("vector_store", "failed", "vector_store_unavailable"),
        *BOTH,
    }
    (missing,) = [one.detail for one in found if one.code == "vector_store_unavailable"]
    assert "is missing" in missing


async def test_a_redis_that_evicts_and_one_that_is_closed(
    healthy: dict[str, str], redis: "RedisServer"
) -> None:
    """The first is a warning; the second answers no question yet."""
    with contextlib.closing(redis_client.Redis.from_url(redis.url)) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = await findings(healthy)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert complaints(found) == {("quota", "warning", "quota_evicts"), *BOTH}
    found = await findings({**healthy, "GATEWAY_REDIS_URL": redis.fresh()})
    assert complaints(found) == {("quota", "failed", "quota_unavailable"), *BOTH}


async def test_a_folder_is_not_shared_and_may_be_open(healthy: dict[str, str]) -> None:
    """Originals and the journal in a folder of this machine, which others may read."""
    folder = Path(healthy["GATEWAY_DATA_DIR"])
    folder.mkdir()
    folder.chmod(0o755)
    del healthy["GATEWAY_OBJECT_STORE_URL"], healthy["GATEWAY_JOURNAL_URL"]
    assert complaints(await findings(healthy)) == {
        ("object_store", "warning", "not_shared"),
        ("journal", "warning", "journal_not_shared"),
        ("settings", "warning", "data_dir_open"),
        *BOTH,
    }


ANSWER_KEY = base64.b64encode(bytes(range(32))).decode()
REDIS = {"GATEWAY_REDIS_URL": f"redis://:owner-secret@{NOWHERE}"}
KEPT: dict[str, tuple[dict[str, str], str]] = {
    "by_each": ({}, "kept 600 s in each web process' memory"),
    "nowhere": (REDIS | {"GATEWAY_ANSWER_CACHE_TTL_S": "0"}, "none is kept"),
    "in_redis": (REDIS, "kept 600 s in Redis, not encrypted"),
    "sealed": (REDIS | {"GATEWAY_ANSWER_CACHE_KEY": ANSWER_KEY}, "kept 600 s in Redis, encrypted"),
}


@pytest.mark.parametrize(("given", "told"), KEPT.values(), ids=KEPT)
async def test_it_says_where_answers_are_kept(given: dict[str, str], told: str, tmp_path: Path) -> None:
    """Also of a Redis that is away."""
    found = await findings({"GATEWAY_DATA_DIR": str(tmp_path), **given})
    assert [(one.verdict, one.detail) for one in found if one.part == "answers"] == [(Verdict.OK, told)]


async def test_a_key_for_answers_that_is_none(tmp_path: Path) -> None:
    """A failure, as it is for a start."""
    found = await findings({"GATEWAY_DATA_DIR": str(tmp_path), "GATEWAY_ANSWER_CACHE_KEY": "owner-secret"})
    assert complaints(found) == {("answers", "failed", "answer_cache_key")}


async def test_a_data_folder_without_room_is_a_failure(tmp_path: Path) -> None:
    """It is looked at where parts lie in it, and once a start has made it."""
    env = {"GATEWAY_DATA_DIR": str(tmp_path), "GATEWAY_DATA_RESERVE_MB": str(2**40)}
    assert complaints(await findings(env)) == {("data_folder", "failed", "storage_full")}
    unmade = await findings(env | {"GATEWAY_DATA_DIR": str(tmp_path / "data")})
    assert "data_folder" not in {one.part for one in unmade}


async def test_settings_that_no_start_accepts(tmp_path: Path) -> None:
    """Each by itself; the exit code of the command is 1, and its lines are JSON."""
    env = {
        "GATEWAY_DATA_DIR": str(tmp_path / "data"),
        "GATEWAY_ENV": "production",
        "GATEWAY_WORKERS": "2",
        "GATEWAY_EMBEDDING_BASE_URL": f"http://{NOWHERE}/v1",
    }
    told = await run_command("doctor", "--json", env=env)
    assert (told.code, told.err) == (1, "")
    codes = [line["code"] for line in told.lines if line["part"] == "settings"]
    assert codes.count("production_needs_servers") == 4
    assert codes.count("workers_need_servers") == 3
    assert codes.count("settings_incomplete") == 2
    assert all(line.keys() == {"part", "verdict", "code", "detail", "advice"} for line in told.lines)


@pytest.mark.soak
async def test_it_disturbs_no_running_server(tmp_path: Path) -> None:
    """Beside a `serve` on embedded parts: a table for people, exit 0, and the server goes on."""
    async with gateway_process(tmp_path) as gateway:
        table = await run_command("doctor", env={"GATEWAY_DATA_DIR": str(gateway.data_dir)})
        assert (table.code, table.err) == (0, "")
        assert "Milvus Lite, a child of the serving process" in table.out
        assert "failed" not in table.out
        await gateway.learn({"certs.md": "# Certificates\n\nThey are rotated every 90 days.\n"})
        assert (await gateway.ask("How often are certificates rotated?"))[0] == 200
        assert await gateway.stop() == 0
