"""A worker process over small parts: ``worker_child FOLDER READY_FILE``.

It has one import to do, over the SQLite catalog in the folder, and gets stuck in it. It is opened once the
folder has a file ``open``, and its one part answers once there is a file ``up``.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel

from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.sql.catalog import open_catalog
from gateway.errors import VectorStoreUnavailable
from gateway.ingest.document import BuiltDocument
from gateway.ingest.worker import Worker
from gateway.observe.logging import get_logger
from gateway.processes.readyfile import write_ready_file
from gateway.processes.worker import run_worker
from gateway.settings import Settings
from gateway.web.readiness import Readiness
from tests.harness.process import eventually
from tests.integration.import_world import TEXTS, Clock, ImportWorld


class StuckParser:
    """Never answers."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        await anyio.sleep_forever()
        raise AssertionError


@dataclass(frozen=True)
class Opened:
    worker: Worker
    readiness: Readiness


@asynccontextmanager
async def open_small(settings: Settings) -> AsyncIterator[Opened]:
    folder, log = settings.data_dir, get_logger("small")
    async with open_catalog(folder / "catalog.db") as catalog:
        log.info("small.opening")
        try:
            await eventually(lambda: there_is(folder / "open"))
            world = ImportWorld(catalog, MemoryVectors(), MemoryObjects(), Clock(), real=False)
            await world.accept(TEXTS)
            worker = world.worker(parser=StuckParser())
            yield Opened(worker, Readiness({"store": lambda: answer_if(folder / "up")}))
        finally:
            await anyio.lowlevel.checkpoint()  # as parts do when they close
            log.info("small.closed")


async def there_is(path: Path) -> bool:
    return path.exists()


async def answer_if(path: Path) -> None:
    if not path.exists():
        raise VectorStoreUnavailable()


if __name__ == "__main__":
    folder, ready_file = map(Path, sys.argv[1:])
    run_worker(
        Settings(data_dir=folder), open_small, lambda name: write_ready_file(ready_file, {"worker": name})
    )
