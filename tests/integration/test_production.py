"""Production: what a start refuses, each with its reason, and what a fit one does, from import to kill -9."""

import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
import psutil
import pytest
import pytest_asyncio

from gateway.adapters.sql.postgres_admin import grant_runtime
from gateway.bootstrap.opening import open_services
from gateway.errors import ConfigurationError
from tests.harness.process import GatewayProcess, eventually, gone, run_command
from tests.harness.sides import settings_of
from tests.harness.wire import ask, request
from tests.integration.production_world import (
    OWNER,
    QUESTION,
    ROOT,
    RUNTIME,
    TEXT,
    Installation,
    assert_no_secret,
    each_alone,
    installation,
    web_processes,
)

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: settings that are production's as far as they go; nobody listens there
PRODUCTION = {
    "GATEWAY_ENV": "production",
    "GATEWAY_DATABASE_URL": "postgresql://gateway:runtime-secret@127.0.0.1:1/gateway",
    "GATEWAY_MILVUS_URI": "http://127.0.0.1:1",
    "GATEWAY_REDIS_URL": "redis://127.0.0.1:1",
    "GATEWAY_OIDC_ISSUER": "https://issuer.example",
    "GATEWAY_OIDC_AUDIENCE": "qa-gateway",
}
LACKING = {
    "GATEWAY_OIDC_ISSUER": "production_needs_servers: production refuses embedded parts: "
    "the local signing key (set GATEWAY_OIDC_ISSUER)",
    "GATEWAY_DATABASE_URL": "production_needs_servers: production refuses embedded parts: "
    "SQLite (set GATEWAY_DATABASE_URL)",
    "GATEWAY_MILVUS_URI": "production_needs_servers: production refuses embedded parts: "
    "Milvus Lite (set GATEWAY_MILVUS_URI)",
    "GATEWAY_REDIS_URL": "production_needs_servers: production refuses embedded parts: "
    "the in-process quota (set GATEWAY_REDIS_URL)",
    "GATEWAY_OIDC_AUDIENCE": "settings_incomplete: these settings belong together: "
    "GATEWAY_OIDC_AUDIENCE is not set",
}


@pytest.mark.parametrize("name", LACKING)
async def test_a_start_without_one_of_its_parts_is_refused(name: str, tmp_path: Path) -> None:
    """Exit 2, one line that names the setting, before anything is opened or made."""
    env = {k: v for k, v in PRODUCTION.items() if k != name}
    env |= {"GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_WORKERS": "2"}
    refusal = await run_command("serve", "--port", "0", env=env)
    assert (refusal.code, refusal.out, refusal.err) == (2, "", f"{LACKING[name]}\n")
    assert not (tmp_path / "data").exists()


@pytest.fixture(scope="module")
def bare(
    postgres: "PostgresServer",
    redis: "RedisServer",
    s3: "S3Server",
    guarded_milvus: "MilvusServer",
) -> Iterator[Installation]:
    """Servers and accounts; nobody has migrated yet."""
    with installation(postgres, guarded_milvus, redis, s3) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def migrated(bare: Installation) -> Installation:
    """After ``migrate``, which made the runtime accounts what they are."""
    done = await bare.migrate()
    assert done.code == 0, done.err
    assert_no_secret(done.out + done.err)
    return bare


async def test_a_schema_that_is_not_migrated_is_refused(bare: Installation, tmp_path: Path) -> None:
    """Exit 2 of the real command with two web processes: said once, and no table was made."""
    owner = {**bare.owner, "GATEWAY_DATA_DIR": str(tmp_path)}
    refusal = await run_command("serve", "--port", "0", "--workers", "2", env=owner)
    assert refusal.code == 2
    (line,) = refusal.err.splitlines()
    assert line.startswith("schema_not_migrated: ")
    assert "`qa-gateway migrate`" in line
    count = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert bare.servers.postgres.sql(count, bare.database) == "0"


async def refusal_of(environment: Mapping[str, str]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as refused:
        async with open_services(settings_of(environment)):
            pass
    assert_no_secret(refused.value.detail)
    return refused.value


@pytest.mark.soak
async def test_an_owner_of_the_tables_is_refused(migrated: Installation, tmp_path: Path) -> None:
    """The database's account that migrates is none that serves; the line stays short."""
    owner = {"GATEWAY_DATABASE_URL": migrated.database_url(OWNER), "GATEWAY_DATA_DIR": str(tmp_path)}
    error = await refusal_of({**migrated.runtime, **owner})
    assert error.reason == "account_too_powerful"
    assert error.detail.startswith("the database's account may do more than read and write rows: it may ")
    assert len(error.detail) < 300


POWERS = {
    "create": ("GRANT CREATE ON SCHEMA public TO gateway_runtime", "it may create tables in the schema"),
    "own": ("ALTER TABLE audit OWNER TO gateway_runtime", "it owns the table audit"),
    "superuser": ("ALTER ROLE gateway_runtime SUPERUSER", "it is a superuser, or may become one"),
}
UNDO = (
    "ALTER ROLE gateway_runtime NOSUPERUSER",
    "REVOKE CREATE ON SCHEMA public FROM gateway_runtime",
    f"ALTER TABLE audit OWNER TO {OWNER}",
)


@pytest.mark.parametrize("power", POWERS)
async def test_a_runtime_account_that_was_given_more_is_refused(
    power: str, migrated: Installation, tmp_path: Path
) -> None:
    """By what it may do, whoever gave it; without it the same account is fit again."""
    statement, told = POWERS[power]
    sql = migrated.servers.postgres.sql
    sql(statement, migrated.database)
    try:
        error = await refusal_of({**migrated.runtime, "GATEWAY_DATA_DIR": str(tmp_path)})
    finally:
        for undo in UNDO:
            sql(undo, migrated.database)
        await anyio.to_thread.run_sync(grant_runtime, migrated.database_url(OWNER), RUNTIME)
    assert error.reason == "account_too_powerful"
    assert error.detail.endswith(told)


@pytest.mark.soak
async def test_root_of_milvus_is_refused_for_workers_too(migrated: Installation, tmp_path: Path) -> None:
    """Exit 2 of the real command; the runtime account that migrate made is the one that may."""
    env = {**migrated.runtime, "GATEWAY_MILVUS_TOKEN": ROOT, "GATEWAY_DATA_DIR": str(tmp_path)}
    refusal = await run_command("worker", env=env)
    assert refusal.code == 2
    (line,) = refusal.err.splitlines()
    assert line.startswith("account_too_powerful: the vector store's account may do more than ")
    assert "drop a" in line or "create" in line


@dataclass(frozen=True)
class Production:
    """Two web processes and a worker that run, over ``installed``."""

    installed: Installation
    gateway: GatewayProcess
    folder: Path
    worker: psutil.Process
    stack: AsyncExitStack

    async def on_each(self, token: str) -> list[int]:
        """The status of one question on each web process."""
        return [(await ask(self.gateway.port, token, QUESTION))[0].status for _ in each_alone(self.gateway)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def production(
    migrated: Installation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Production]:
    """As an operator starts it, with a first document imported over HTTP."""
    folder = tmp_path_factory.mktemp("production")
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(migrated.importing(folder))
        serving = migrated.serving(folder, "--workers", "2", GATEWAY_RETRIEVAL_MODE="auto")
        gateway = await stack.enter_async_context(serving)
        await gateway.learn(TEXT)
        yield Production(migrated, gateway, folder, worker, stack)
        assert await gateway.stop() == 0
        said = gateway.stderr + (folder / "worker.txt").read_text()
        assert "Traceback" not in said
        assert_no_secret(said)


async def test_a_question_is_answered_with_a_citation_by_both_processes(production: Production) -> None:
    """A token of the issuer, the catalog's permissions, Milvus' passages, the endpoint's answer."""
    status, events, _ = await production.gateway.ask(QUESTION)
    assert status == 200
    done = events[-1]
    assert (done.name, done.data["status"]) == ("done", "ANSWERED")
    (citation,) = done.data["citations"]
    assert citation["title"] == "Certificates"
    assert citation["supported"]
    assert events[0].data["model"] == "stub"
    assert await production.on_each(production.gateway.token()) == [200, 200]


async def test_another_tenant_sees_nothing_of_it(production: Production) -> None:
    """As if the knowledge base weren't there: to ask, to list, to search."""
    port = production.gateway.port
    foreign = production.gateway.token("ask", "ingest", tenant="globex")
    head, _ = await ask(port, foreign, QUESTION, knowledge_base="handbook")
    assert head.status == 404
    head, body = await request(port, "GET", "/v1/documents?knowledge_base=handbook", token=foreign)
    assert (head.status, b"certs" in body) == (200, False)
    path = "/v1/search?query=certificate&knowledge_base=handbook"
    assert (await request(port, "GET", path, token=foreign))[0].status == 404


async def test_an_api_key_of_the_command_line_works_until_it_is_revoked(production: Production) -> None:
    """Made, used, revoked; then refused by both processes at once."""
    gateway = production.gateway
    env = {
        "GATEWAY_URL": gateway.base_url,
        "GATEWAY_TOKEN": gateway.token("ask", "operate"),
    }
    made = await run_command(
        *("apikey", "create", "--name", "bot", "--scope", "ask", "--group", "staff", "--json"), env=env
    )
    assert made.code == 0, made.err
    (key,) = made.lines
    assert await production.on_each(key["api_key"]) == [200, 200]
    ended = await gateway.call("DELETE", f"/v1/apikeys/{key['key_id']}", "operate")
    assert ended.status_code == 200, ended.text
    assert await production.on_each(key["api_key"]) == [401, 401]
    assert key["api_key"] not in gateway.stderr


async def test_a_revoked_user_is_refused_by_both_processes(production: Production) -> None:
    """Also by the one that didn't hear of it first."""
    gateway = production.gateway
    token = gateway.token(subject="bob")
    assert await production.on_each(token) == [200, 200]
    revoked = await gateway.call(
        "POST", "/v1/revocations", "revoke", json={"kind": "user", "id": "bob", "reason": "left"}
    )
    assert revoked.status_code == 201, revoked.text
    assert await production.on_each(token) == [403, 403]
    assert await production.on_each(gateway.token()) == [200, 200]


@pytest.mark.soak
async def test_killed_processes_are_replaced_and_nothing_is_lost(production: Production) -> None:
    """kill -9 of a web process and of the worker in mid-import: questions are answered all the while, the
    next worker ends the task, and every document of it can be asked for.
    """
    gateway, before = production.gateway, web_processes(production.gateway)
    texts = {f"gate-{n}.md": f"# Gate {n}\n\nThe code of gate number {n} is omega{n}.\n" for n in range(60)}
    accepted = await gateway.upload(texts)
    assert accepted.status_code == 202, accepted.text
    task_id = accepted.json()["task_id"]

    async def half_way() -> bool:
        task = await gateway.task(task_id)
        assert task["state"] in {"PENDING", "RUNNING"}, task
        return 0 < int(task["progress"]["done"]) < len(texts)

    await eventually(half_way)
    production.worker.kill()
    before[0].kill()
    assert (await gateway.ask(QUESTION))[0] == 200
    await gone(production.worker.pid)
    await production.stack.enter_async_context(production.installed.importing(production.folder))

    async def replaced() -> bool:
        return len(gateway.log("web_process.answering")) == 3

    await eventually(replaced)
    task = await gateway.task_ended(task_id)
    assert task["state"] == "SUCCEEDED", task
    assert {document["state"] for document in task["documents"]} == {"READY"}
    (ended,) = gateway.log("web_process.ended")
    assert ended["exit_code"] == -signal.SIGKILL
    for number in (0, 59):
        _, events, _ = await gateway.ask(f"What is the code of gate number {number}?")
        assert f"omega{number}" in "".join(e.data["text"] for e in events if e.name == "delta")
    assert await production.on_each(gateway.token()) == [200, 200]


async def test_an_embedder_of_another_space_is_refused(production: Production, tmp_path: Path) -> None:
    """By serve, once a release is active: its vectors can't be asked with it."""
    other = {"GATEWAY_EMBEDDING_NAME": "another-model", "GATEWAY_DATA_DIR": str(tmp_path)}
    environment = {**production.installed.runtime, **other}
    error = await refusal_of(environment)
    assert error.reason == "embedding_space_mismatch"
    assert "an active release holds wordllama-256-v1" in error.detail
