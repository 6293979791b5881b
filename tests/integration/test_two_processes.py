"""Parts that come up late, go down and come back, under a running ``serve`` with two web processes."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import pytest_asyncio
import redis as redis_client

from gateway.bootstrap.opening import open_services
from gateway.errors import Unavailable
from tests.harness.milvus_server import milvus_server
from tests.harness.postgres import postgres_server
from tests.harness.process import GatewayProcess, eventually, spawned
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.redis_server import redis_server
from tests.harness.s3 import S3Server, s3_server
from tests.harness.sides import settings_of
from tests.harness.wire import connected
from tests.integration.production_world import (
    QUESTION,
    TEXT,
    Installation,
    assert_no_secret,
    environ,
    installation,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def migratable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Servers of this module's own: they are stopped and started here."""
    with (
        postgres_server(tmp_path_factory.mktemp("postgres")) as postgres,
        redis_server(tmp_path_factory.mktemp("redis")) as redis,
        s3_server() as s3,
        milvus_server(tmp_path_factory.mktemp("guarded"), authorization=True) as milvus,
        installation(postgres, milvus, redis, s3) as found,
    ):
        yield found


@dataclass(frozen=True)
class Town:
    """A gateway, the servers behind it, and the door to its object store."""

    installed: Installation
    gateway: GatewayProcess
    objects: Proxy
    said_at_start: list[dict[str, Any]]

    async def readyz(self) -> dict[str, Any]:
        async with httpx2.AsyncClient(base_url=self.gateway.base_url, trust_env=False, timeout=60) as http:
            found: dict[str, Any] = (await http.get("/readyz")).json()
        return found

    async def until_down(self, part: str, code: str) -> None:
        """Both processes are asked in turn, as the kernel has it: one that says so is enough."""

        async def says_so() -> bool:
            found = await self.readyz()
            if found["parts"][part]:
                return False
            assert not found["ready"]
            assert found["details"][part]["code"] in {code, "deadline_exceeded"}
            return True

        await eventually(says_so)

    async def until_answered(self) -> None:
        """Ready again, and a question is answered, without anybody's help."""

        async def answered() -> bool:
            return (await self.readyz())["ready"] and (await self.gateway.ask(QUESTION))[0] == 200

        await eventually(answered)

    async def problem(self) -> str:
        """The code of a question that is refused with 503."""
        status, _, problem = await self.gateway.ask(QUESTION)
        assert status == 503, problem
        return str(problem["code"])


async def assert_gives_up(environment: dict[str, str], code: str) -> None:
    """A start that waits for a moment only ends with the part's code, and tells what to look at."""
    impatient = {**environment, "GATEWAY_START_WAIT_S": "0.3"}
    with pytest.raises(Unavailable, match="check GATEWAY_") as given_up:
        async with open_services(settings_of(impatient)):
            pass
    assert given_up.value.code == code
    assert_no_secret(str(given_up.value))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(
    migratable: Installation, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Town]:
    """Started before PostgreSQL, Milvus, Redis and the issuer, which then come up one after the other."""
    done = await migratable.migrate()
    assert done.code == 0, done.err
    servers, folder = migratable.servers, tmp_path_factory.mktemp("town")
    parts = {"catalog": servers.postgres, "vector_store": servers.milvus, "quota": servers.redis}
    for part in parts.values():
        part.stop()
    servers.issuer.down()
    async with proxy_to(servers.s3.port) as objects:
        environment = {
            **migratable.runtime,
            **S3Server(objects.port).environment,
            "GATEWAY_DATA_DIR": str(folder / "data"),
            "GATEWAY_SERVE_IMPORTS": "true",
            "GATEWAY_START_WAIT_S": "120",
        }
        errors, ready_file = folder / "stderr.txt", folder / "ready.json"
        asked = ("--port", "0", "--workers", "2", "--ready-file", str(ready_file))
        async with spawned("serve", *asked, errors=errors, env=environment) as process:
            gateway: GatewayProcess | None = None
            waited = GatewayProcess(
                process, {"base_url": ":0", "data_dir": str(folder / "data")}, errors, servers
            )
            for name, part in parts.items():

                async def waiting(name: str = name) -> bool:
                    assert process.returncode is None, errors.read_text()
                    return any(record["part"] == name for record in waited.log("part.waiting"))

                await eventually(waiting)
                with environ(S3Server(objects.port).environment):
                    await assert_gives_up(environment, f"{name}_unavailable")
                await anyio.to_thread.run_sync(part.start)

            async def ready() -> bool:
                assert process.returncode is None, errors.read_text()
                return ready_file.exists()

            await eventually(ready)
            gateway = GatewayProcess(
                process, httpx2.Response(200, content=ready_file.read_bytes()).json(), errors, servers
            )
            yield Town(migratable, gateway, objects, waited.log("part.waiting"))
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.stderr
            assert_no_secret(gateway.stderr)


async def test_parts_that_come_up_late_are_waited_for(town: Town) -> None:
    """Each in its turn, and said in one line with its reason."""
    said = [(record["part"], record["code"]) for record in town.said_at_start]
    assert said[:1] == [("catalog", "catalog_unavailable")]
    assert list(dict.fromkeys(part for part, _ in said)) == ["catalog", "vector_store", "quota"]
    assert all(code == f"{part}_unavailable" for part, code in said)
    assert len(said) <= 6, "a line for each reason, not for each try"


async def test_an_issuer_that_comes_up_late_is_found(town: Town) -> None:
    """Until then nobody can tell whose token is good, and readiness says so; a start doesn't need it."""
    await town.until_down("identity", "unavailable")
    assert await town.problem() == "identity_unavailable"
    town.installed.servers.issuer.up()
    await eventually(lambda: said_ready(town))
    redis = town.installed.servers.redis
    await open_quota(redis.through(redis.port, town.installed.runtime["GATEWAY_REDIS_URL"]))
    await town.gateway.learn(TEXT)
    await town.until_answered()


async def said_ready(town: Town) -> bool:
    found = await town.readyz()
    return bool(found["parts"]["identity"])


async def open_quota(url: str) -> None:
    """As if the lease time were over: a Redis that lost its keys is closed for a minute."""

    def set_open() -> bool:
        with contextlib.closing(redis_client.Redis.from_url(url)) as client:
            key = "qa-gateway:{quota}:incarnation"
            return bool(client.exists(key)) and client.hset(key, "opens_ms", 0) is not None

    async def opened() -> bool:
        return await anyio.to_thread.run_sync(set_open)

    await eventually(opened)


async def test_a_database_that_restarts_in_mid_answer(town: Town) -> None:
    """The answer goes on; while it is down questions get 503 with its code; then all is well again."""
    postgres = town.installed.servers.postgres
    async with connected(town.gateway.port) as wire:
        await wire.ask(town.gateway.token(), f'{QUESTION} @@stub{{"tokens": ["a", "b [1]"], "gate": 1}}@@')
        assert (await wire.read_head()).status == 200
        await anyio.to_thread.run_sync(postgres.stop)
        await town.until_down("catalog", "catalog_unavailable")
        assert await town.problem() == "catalog_unavailable"
        await anyio.to_thread.run_sync(postgres.start)
        await town.until_answered()
"""placeholder"""
