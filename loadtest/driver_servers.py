"""Gateways over real servers, for runs that need more than one process: PostgreSQL, Milvus, Redis, S3."""

import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.overhead_text import DOCUMENTS
from tests.harness.issuer import serving_issuer
from tests.harness.milvus_server import milvus_server
from tests.harness.postgres import postgres_server
from tests.harness.process import GatewayProcess, started
from tests.harness.redis_server import redis_server
from tests.harness.s3 import s3_server
from tests.harness.sides import Servers, embedding_endpoint


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """Empty ones on free ports. They end with the thread that starts them: call it on the main one."""
    with contextlib.ExitStack() as stack:

        def home(name: str) -> Path:
            (folder / name).mkdir(parents=True)
            return folder / name

        yield Servers(
            stack.enter_context(postgres_server(home("postgres"))),
            stack.enter_context(milvus_server(home("milvus"))),
            stack.enter_context(redis_server(home("redis"))),
            stack.enter_context(s3_server()),
            stack.enter_context(serving_issuer()),
            stack.enter_context(embedding_endpoint()),
        )


@dataclass(frozen=True, slots=True)
class Door:
    """One ``serve`` of an installation: every start is on the same port, under the same name."""

    name: str
    folder: Path
    environment: Mapping[str, str]
    side: Servers

    @asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[GatewayProcess]:
        """The process, once it is ready; killed in the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        async with started(
            *("serve", "--port", str(port), "--data-dir", str(self.folder / "data")),
            ready_file=self.folder / "ready.json",
            errors=self.folder / "stderr.txt",
            env={**self.environment, "GATEWAY_PROCESS_NAME": self.name},
            side=self.side,
        ) as gateway:
            yield gateway


async def doors(
    side: Servers,
    folder: Path,
    count: int,
    settings: Mapping[str, str],
    without: Collection[str] = (),
) -> list[Door]:
    """So many of one new, migrated installation; the first of them imports. ``without`` names settings."""
    fresh = {name: value for name, value in (await side.fresh()).items() if name not in without}
    environment = {**fresh, **settings}
    return [
        Door(
            f"door-{number}",
            folder / f"door-{number}",
            {**environment, "GATEWAY_SERVE_IMPORTS": str(number == 0).lower()},
            side,
        )
        for number in range(count)
    ]


async def learn(gateway: GatewayProcess, knowledge_base: str) -> None:
    """The documents that the scenarios ask about."""
    await gateway.learn(DOCUMENTS, knowledge_base=knowledge_base)
