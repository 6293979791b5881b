"""Parts that come up late, go down and come back, under a running ``serve`` with two web processes."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

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
from tests.harness.s3 import s3_server
from tests.harness.sides import settings_of
from tests.harness.wire import connected
from tests.integration.production_world import (
    QUESTION,
    TEXT,
    Installation,
    assert_no_secret,
    each_alone,
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


class Startable(Protocol):
    """A server of the harness. It ends with the thread that starts it: that must be this one."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


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
        """Each process says so, with the part's code."""

        async def says_so() -> bool:
            found = await self.readyz()
            if found["parts"][part]:
                return False
            assert not found["ready"]
            assert found["details"][part]["code"] in {code, "deadline_exceeded"}
            return True

        for _ in each_alone(self.gateway):
            await eventually(says_so)

    async def until_up(self, part: str) -> None:
        """Each process says so."""

        async def says_so() -> bool:
            return bool((await self.readyz())["parts"][part])

        for _ in each_alone(self.gateway):
            await eventually(says_so)

    async def until_answered(self) -> None:
        """Each process is ready again and answers a question, without anybody's help."""

        async def answered() -> bool:
            return (await self.readyz())["ready"] and (await self.gateway.ask(QUESTION))[0] == 200

        for _ in each_alone(self.gateway):
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
async def town(migratable: Installation, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Town]:
    """Started before PostgreSQL, Milvus and Redis, which then come up one after the other; the issuer is
    still away.
    """
    done = await migratable.migrate()
    assert done.code == 0, done.err
    servers, folder = migratable.servers, tmp_path_factory.mktemp("town")
    late: dict[str, Startable] = {
        "catalog": servers.postgres,
        "vector_store": servers.milvus,
        "quota": servers.redis,
    }
    for server in late.values():
        server.stop()
    servers.issuer.down()
    async with proxy_to(servers.s3.port) as objects:
        environment = {
            **migratable.runtime,
            **servers.s3.environment_at(f"http://127.0.0.1:{objects.port}"),
            "GATEWAY_DATA_DIR": str(folder / "data"),
            "GATEWAY_SERVE_IMPORTS": "true",
            "GATEWAY_START_WAIT_S": "120",
            # answers outlive the restarts of this module: that they end without a feed is tested elsewhere
            "GATEWAY_REVOCATION_BOUND_MS": "60000",
        }
        errors, ready_file = folder / "stderr.txt", folder / "ready.json"
        asked = ("--port", "0", "--workers", "2", "--ready-file", str(ready_file))
        async with spawned("serve", *asked, errors=errors, env=environment) as process:
            for part, server in late.items():
                await eventually(partial(waiting_for, part, errors))
                with environ(environment):
                    await assert_gives_up(environment, f"{part}_unavailable")
                server.start()

            async def ready_or_over() -> bool:
                return ready_file.exists() or process.returncode is not None

            await eventually(ready_or_over)
            assert ready_file.exists(), errors.read_text()
            gateway = GatewayProcess(process, json.loads(ready_file.read_text()), errors, servers)
            yield Town(migratable, gateway, objects, gateway.log("part.waiting"))
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.stderr
            assert_no_secret(gateway.stderr)


async def waiting_for(part: str, errors: Path) -> bool:
    """Whether the process that logs there has said that it waits for the part."""
    lines = [line for line in errors.read_text().splitlines() if '"part.waiting"' in line]
    return any(json.loads(line)["part"] == part for line in lines)


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
    await town.until_up("identity")
    await open_quota(town.installed.runtime["GATEWAY_REDIS_URL"])
    await town.gateway.learn(TEXT)
    await town.until_answered()


async def open_quota(url: str) -> None:
    """As if the lease time were over: a Redis that lost its keys is closed for a minute."""

    def set_open() -> bool:
        with contextlib.closing(redis_client.Redis.from_url(url)) as client:
            key = "qa-gateway:{quota}:incarnation"
            return bool(client.exists(key)) and client.hset(key, "opens_ms", 0) is not None

    async def opened() -> bool:
        return await anyio.to_thread.run_sync(set_open)

    await eventually(opened)


async def scripted(town: Town, path: str, **script: Any) -> None:
    """Tells the model what to do."""
    url = town.installed.servers.embedding_url.removesuffix("/v1")
    async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
        (await http.post(path, json=script)).raise_for_status()


async def test_a_database_that_restarts_in_mid_answer(town: Town) -> None:
    """The answer comes to its end; meanwhile questions get 503 with its code; then all is well again."""
    postgres = town.installed.servers.postgres
    await scripted(town, "/_script?model=stub", gate_before_end=True)
    async with connected(town.gateway.port) as wire:
        await wire.ask(town.gateway.token(), QUESTION)
        assert (await wire.read_head()).status == 200
        postgres.stop()
        await town.until_down("catalog", "catalog_unavailable")
        assert await town.problem() == "catalog_unavailable"
        postgres.start()
        await scripted(town, "/_reset")
        await scripted(town, "/_script?model=stub")
        await scripted(town, "/_gate")
        events = await wire.all_events()
    assert [events[0].name, events[-1].name] == ["meta", "done"]
    await town.until_answered()


async def test_a_vector_store_that_restarts(town: Town) -> None:
    """Down: 503 with its code. Back: the released passages are found as before."""
    milvus = town.installed.servers.milvus
    milvus.stop()
    await town.until_down("vector_store", "vector_store_unavailable")
    assert await town.problem() == "vector_store_unavailable"
    milvus.start()
    await town.until_answered()


async def test_a_redis_that_restarts_stays_closed_for_its_lease(town: Town) -> None:
    """Calls that it forgot may still run: no new one begins before the last of them must be over."""
    redis = town.installed.servers.redis
    redis.stop()
    await town.until_down("quota", "quota_unavailable")
    assert await town.problem() == "quota_unavailable"
    redis.start()
    await town.until_down("quota", "quota_unavailable")
    assert await town.problem() == "quota_unavailable"
    await open_quota(town.installed.runtime["GATEWAY_REDIS_URL"])
    await town.until_answered()


async def test_an_object_store_that_is_away(town: Town) -> None:
    """Questions don't need it; an upload gets 503 with its code and leaves no task behind."""
    await town.objects.refuse()
    await town.until_down("object_store", "object_store_unavailable")
    assert (await town.gateway.ask(QUESTION))[0] == 200
    refused = await town.gateway.upload({"more.md": "# More\n\nThere is more.\n"})
    assert (refused.status_code, refused.json()["code"]) == (503, "object_store_unavailable")
    await town.objects.accept()
    await town.until_answered()
    await town.gateway.learn({"more.md": "# More\n\nThere is more.\n"})


async def test_an_issuer_that_is_away_keeps_nobody_out(town: Town) -> None:
    """Its keys are here for an hour."""
    town.installed.servers.issuer.down()
    assert (await town.gateway.ask(QUESTION))[0] == 200
    town.installed.servers.issuer.up()
    await town.until_answered()
