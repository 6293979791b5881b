"""An installation as production has it: servers that ask who is there, and accounts of little power."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.harness.issuer import serving_issuer
from tests.harness.process import Finished, GatewayProcess, eventually, run_command, spawned, started
from tests.harness.sides import AUDIENCE, Servers, embedding_endpoint

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

OWNER, RUNTIME = "gateway_owner", "gateway_runtime"
#: each account's password; nothing that anybody says may hold one
PASSWORDS = {OWNER: "owner-secret", RUNTIME: "runtime-secret", "milvus": "milvus-secret"}
ROOT = "root:Milvus"
PEPPER = "a-pepper-that-nobody-may-see-anywhere"
TEXT = {"certs.md": "# Certificates\n\nThe certificate is rotated every 90 days with certctl rotate.\n"}
QUESTION = "How often is the certificate rotated?"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Installation:
    """``runtime`` and ``owner`` are the environments of the two kinds of commands."""

    servers: Servers
    database: str
    runtime: Mapping[str, str]

    @property
    def owner(self) -> dict[str, str]:
        return {
            **self.runtime,
            "GATEWAY_DATABASE_URL": self.database_url(OWNER),
            "GATEWAY_MILVUS_TOKEN": ROOT,
            "GATEWAY_MILVUS_ACCOUNT_PASSWORD": PASSWORDS["milvus"],
        }

    def database_url(self, account: str, password: str | None = None) -> str:
        secret = password or PASSWORDS[account]
        return f"postgresql://{account}:{secret}@127.0.0.1:{self.servers.postgres.port}/{self.database}"

    async def migrate(self) -> Finished:
        """The real command, with both runtime accounts."""
        accounts = ("--runtime-account", RUNTIME, "--milvus-account", "gateway")
        return await run_command("migrate", *accounts, env=self.owner)

    @asynccontextmanager
    async def serving(self, folder: Path, *arguments: str, **changes: str) -> AsyncIterator[GatewayProcess]:
        """``serve`` with the runtime account."""
        async with started(
            *("serve", "--port", "0", "--data-dir", str(folder / "data"), *arguments),
            ready_file=folder / "ready.json",
            errors=folder / "stderr.txt",
            env={**self.runtime, **changes},
            side=self.servers,
        ) as gateway:
            yield gateway

    @asynccontextmanager
    async def importing(self, folder: Path) -> AsyncIterator[psutil.Process]:
        """A ``worker`` with the runtime account, once it is ready."""
        ready_file, errors = folder / f"worker-{next(_numbers)}.json", folder / "worker.txt"
        env = {**self.runtime, "GATEWAY_DATA_DIR": str(folder / "data")}
        async with spawned("worker", "--ready-file", str(ready_file), errors=errors, env=env) as process:

            async def ready_or_over() -> bool:
                return ready_file.exists() or process.returncode is not None

            await eventually(ready_or_over)
            assert ready_file.exists(), errors.read_text()
            yield psutil.Process(process.pid)


@contextmanager
def installation(
    postgres: "PostgresServer", milvus: "MilvusServer", redis: "RedisServer", s3: "S3Server"
) -> Iterator[Installation]:
    """Accounts and an empty database; not migrated. Its Milvus has authorization."""
    database = f"gateway_{next(_numbers)}"
    for account in (OWNER, RUNTIME):
        if not _has_role(postgres, account):
            postgres.sql(f"CREATE ROLE {account} LOGIN PASSWORD '{PASSWORDS[account]}'")
    _ask_for_passwords(postgres)
    postgres.sql(f"CREATE DATABASE {database} OWNER {OWNER} TEMPLATE template0")
    with serving_issuer() as issuer, embedding_endpoint() as models:
        servers = Servers(postgres, milvus, redis, s3, issuer, models)
        found = Installation(servers, database, {})
        runtime = {
            "GATEWAY_ENV": "production",
            "GATEWAY_DATABASE_URL": found.database_url(RUNTIME),
            "GATEWAY_MILVUS_URI": milvus.uri,
            "GATEWAY_MILVUS_TOKEN": f"gateway:{PASSWORDS['milvus']}",
            "GATEWAY_REDIS_URL": redis.fresh(),
            "GATEWAY_RETRIEVAL_MODE": "sdk",  # the extra takes each process over a second to load
            "GATEWAY_OBJECT_STORE_URL": s3.fresh_bucket(),
            "GATEWAY_OIDC_ISSUER": issuer.url,
            "GATEWAY_OIDC_AUDIENCE": AUDIENCE,
            "GATEWAY_EMBEDDING_BASE_URL": models,
            "GATEWAY_EMBEDDING_NAME": "wordllama-l2-supercat",
            "GATEWAY_EMBEDDING_DIMENSION": "256",
            "GATEWAY_MODEL_BASE_URL": models,
            "GATEWAY_MODEL_NAME": "stub",
            "GATEWAY_API_KEY_PEPPER": PEPPER,
            "GATEWAY_TASK_LEASE_S": "3",
            # what is promised on a machine of its own isn't what a busy test machine can keep
            "GATEWAY_EMBED_CAP_MS": "5000",
            "GATEWAY_RETRIEVAL_CAP_MS": "5000",
            "GATEWAY_CATALOG_CAP_MS": "5000",
            "GATEWAY_FIRST_TOKEN_CAP_MS": "5000",
            "GATEWAY_QUOTA_CAP_MS": "2000",
            **s3.environment,
        }
        yield Installation(servers, database, runtime)


def web_processes(gateway: GatewayProcess) -> list[psutil.Process]:
    """Those of a ``serve`` with several."""
    return [
        child
        for child in psutil.Process(gateway.pid).children()
        if "web-process" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
    ]


def each_alone(gateway: GatewayProcess) -> Iterator[psutil.Process]:
    """Every web process in turn; whoever asks meanwhile asks that one, for the others stand still."""
    processes = web_processes(gateway)
    for chosen in processes:
        others = [one for one in processes if one != chosen]
        for one in others:
            one.suspend()
        try:
            yield chosen
        finally:
            for one in others:
                one.resume()


def _has_role(postgres: "PostgresServer", name: str) -> bool:
    return name in postgres.sql("SELECT rolname FROM pg_roles").splitlines()


def _ask_for_passwords(postgres: "PostgresServer") -> None:
    """The harness' server believes everybody; of these two it wants to see the password."""
    path = Path(postgres.sql("SHOW hba_file"))
    line = f"host all {OWNER},{RUNTIME} 127.0.0.1/32 scram-sha-256\n"
    rules = path.read_text()
    if not rules.startswith(line):
        path.write_text(line + rules)
        postgres.sql("SELECT pg_reload_conf()")


@contextmanager
def environ(given: Mapping[str, str]) -> Iterator[None]:
    """For parts that are opened in this process: the object store reads its credentials there."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        yield


def assert_no_secret(text: str) -> None:
    for secret in (*PASSWORDS.values(), ROOT, PEPPER, "test-secret-key"):
        assert secret not in text
