"""A town: what docker-compose.yml starts, as processes of this machine, for load runs and tests of faults.

``python -m loadtest.town [--gateways 2] [--ready-file F]`` runs nginx with its shipped files, gateways and a
worker as in production, PostgreSQL, Redis, Milvus, an S3-compatible store, an issuer and a scripted model;
prints where they are and tokens to ask with; Ctrl-C ends all of it. ``town()`` does so inside a program and
gives a handle to each.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.processes.readyfile import write_ready_file
from loadtest.town_resident import GatewayResident, Resident
from tests.harness.issuer import Issuer
from tests.harness.milvus_server import MilvusServer, milvus_server
from tests.harness.nginx import Nginx, free_port, nginx
from tests.harness.postgres import PostgresServer, postgres_server
from tests.harness.redis_server import RedisServer, redis_server
from tests.harness.s3 import S3Server, s3_server
from tests.integration.production_world import QUESTION, TEXT, Installation, installation

ALL_SCOPES = ("ask", "ingest", "release", "revoke", "operate")
#: the installation's endpoint makes vectors in this very process: under load gateways make them themselves
_ITS_EMBEDDER = "GATEWAY_EMBEDDING_"
_MODEL_STUB = (sys.executable, "-m", "loadtest.model_stub")


@dataclass(frozen=True, kw_only=True)
class Town:
    """``url`` is nginx'. Servers have ``stop`` and ``start``, most ``pause`` and ``resume``: for the thread
    that entered ``town()``.
    """

    nginx: Nginx
    gateways: Sequence[GatewayResident]
    worker: Resident
    model: Resident
    postgres: PostgresServer
    redis: RedisServer
    milvus: MilvusServer
    s3: S3Server
    issuer: Issuer
    installed: Installation

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.nginx.port}"

    def token(
        self,
        *scopes: str,
        tenant: str = "acme",
        subject: str = "ann",
        groups: Sequence[str] = ("staff",),
        ttl_s: float = 86_400,
    ) -> str:
        """The issuer's; scope ``ask`` unless told otherwise."""
        return self.installed.servers.sign(
            Path(), tenant=tenant, subject=subject, groups=groups, scopes=scopes or ("ask",), ttl_s=ttl_s
        )

    async def learn(self, texts: Mapping[str, str | bytes], **fields: Any) -> None:
        """Imports and releases documents for everybody in ``staff``, through the first gateway."""
        await self.gateways[0].client.learn(texts, **fields)

    def addresses(self) -> dict[str, Any]:
        """What a load run needs to know."""
        return {
            "url": self.url,
            "gateways": [{"url": one.ready["base_url"], "pid": one.pid} for one in self.gateways],
            "worker": {"pid": self.worker.pid},
            "model": self.model.ready["base_url"],
            "issuer": self.issuer.url,
            "postgres": self.postgres.url_of(self.installed.database),
            "redis": self.redis.url,
            "milvus": self.milvus.uri,
            "s3": self.s3.endpoint,
            "question": QUESTION,
            "tokens": {
                "acme/ann": self.token(),
                "acme/bob": self.token(subject="bob"),
                "acme/operator": self.token(*ALL_SCOPES, subject="operator"),
                "globex/eve": self.token(tenant="globex", subject="eve"),
            },
        }


@asynccontextmanager
async def town(
    folder: Path, *, gateways: int = 2, learn: bool = True, nginx_port: int | None = None, **settings: str
) -> AsyncIterator[Town]:
    """A whole installation below the folder, ready to be asked; in the end nothing of it is left.

    ``settings`` are further ones of gateways and worker, ``quota_concurrency="8"``. Loopback has no limits
    of nginx.
    """
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(postgres_server(_made(folder / "postgres")))
        redis = stack.enter_context(redis_server(_made(folder / "redis")))
        milvus = stack.enter_context(milvus_server(_made(folder / "milvus"), authorization=True))
        s3 = stack.enter_context(s3_server())
        installed = stack.enter_context(installation(postgres, milvus, redis, s3))
        migrated = await installed.migrate()
        if migrated.code != 0:
            raise RuntimeError(migrated.err)
        processes = _made(folder / "processes")
        model = await _started(stack, Resident("model", processes, (), {}, _MODEL_STUB))
        env = environment(installed, model.ready["base_url"], settings)
        ports = [free_port() for _ in range(gateways)]
        serving = [
            GatewayResident(f"gateway-{number}", processes, port, env, installed.servers)
            for number, port in enumerate(ports, 1)
        ]
        worker = Resident("worker", processes, ("worker",), env)
        for resident in (*serving, worker):
            stack.push_async_callback(resident.aclose)
        await asyncio.gather(*(resident.start() for resident in (*serving, worker)))
        door = await stack.enter_async_context(nginx(*ports, port=nginx_port, unlimited=True))
        here = Town(
            nginx=door,
            gateways=serving,
            worker=worker,
            model=model,
            postgres=postgres,
            redis=redis,
            milvus=milvus,
            s3=s3,
            issuer=installed.servers.issuer,
            installed=installed,
        )
        if learn:
            await here.learn(TEXT)
        yield here


def environment(installed: Installation, model_url: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Of gateways and workers: production's, with the bundled embedder and the scripted model."""
    kept = {name: value for name, value in installed.runtime.items() if not name.startswith(_ITS_EMBEDDER)}
    given = {f"GATEWAY_{name.upper()}": value for name, value in settings.items()}
    return {**kept, "GATEWAY_MODEL_BASE_URL": model_url, **given}


async def _started(stack: AsyncExitStack, resident: Resident) -> Resident:
    stack.push_async_callback(resident.aclose)
    await resident.start()
    return resident


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def _run(options: argparse.Namespace) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    settings = dict(pair.split("=", 1) for pair in options.set)
    with tempfile.TemporaryDirectory(prefix="gateway-town-") as folder:
        async with town(Path(folder), gateways=options.gateways, nginx_port=options.port, **settings) as here:
            print(json.dumps(here.addresses(), indent=2), flush=True)
            if options.ready_file is not None:
                write_ready_file(options.ready_file, here.addresses())
            await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--port", type=int, help="nginx'; a free one otherwise")
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="quota_concurrency=8"
    )
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
