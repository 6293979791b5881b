"""The worker process: when it says that it is ready, what it leaves when it is stopped, why it refuses."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from gateway.adapters.sql.catalog import open_catalog
from tests.harness.process import PATIENCE_S, eventually, run_command, spawned

CHILD = (sys.executable, "-m", "tests.integration.worker_child")
POSTGRESQL = "postgresql://gateway@127.0.0.1:1/gateway"


@dataclass(frozen=True)
class WorkerProcess:
    """A running worker over small parts."""

    process: asyncio.subprocess.Process
    folder: Path
    ready_file: Path
    errors: Path

    async def until_logged(self, event: str) -> None:
        async def look() -> bool:
            return f'"event": "{event}"' in self.errors.read_text()

        await eventually(look)

    async def until_ready(self) -> None:
        async def look() -> bool:
            return self.ready_file.exists()

        await eventually(look)

    async def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        with anyio.fail_after(PATIENCE_S):
            return await self.process.wait()


@asynccontextmanager
async def worker_process(tmp_path: Path, *given: str) -> AsyncIterator[WorkerProcess]:
    """``given``: the files that its folder begins with."""
    folder, ready_file, errors = tmp_path / "data", tmp_path / "ready.json", tmp_path / "stderr.txt"
    folder.mkdir()
    for name in given:
        (folder / name).touch()
    async with spawned(str(folder), str(ready_file), errors=errors, program=CHILD) as process:
        yield WorkerProcess(process, folder, ready_file, errors)


@pytest.mark.soak
async def test_a_stopped_worker_gives_its_task_back(tmp_path: Path) -> None:
    """Exit 0, parts closed, and the task is free for others at once, as if it had never been tried."""
    async with worker_process(tmp_path, "open", "up") as worker:
        await worker.until_ready()
        assert json.loads(worker.ready_file.read_text()) == {"worker": "worker"}
        await worker.until_logged("task.claimed")
        assert await worker.stop(signal.SIGTERM) == 0
        said = worker.errors.read_text()
    assert '"event": "small.closed"' in said
    assert "Traceback" not in said
    async with open_catalog(worker.folder / "catalog.db") as catalog:
        claim = await catalog.claim("another", 600.0, 1)
    assert claim is not None


async def test_a_worker_is_ready_once_its_parts_answer(tmp_path: Path) -> None:
    """It works as far as it can before that, and says which part is down."""
    async with worker_process(tmp_path, "open") as worker:
        await worker.until_logged("readiness.part_down")
        assert "vector_store_unavailable" in worker.errors.read_text()
        assert not worker.ready_file.exists()
        (worker.folder / "up").touch()
        await worker.until_ready()
        assert await worker.stop(signal.SIGTERM) == 0


@pytest.mark.soak
async def test_a_worker_can_be_stopped_before_it_is_open(tmp_path: Path) -> None:
    """Exit 0; what it had opened is closed, and it never was ready."""
    async with worker_process(tmp_path) as worker:
        await worker.until_logged("small.opening")
        assert await worker.stop(signal.SIGINT) == 0
        assert not worker.ready_file.exists()
        said = worker.errors.read_text()
    assert '"event": "small.closed"' in said
    assert "Traceback" not in said


REFUSALS = {
    "nothing": ({}, "worker_needs_postgresql: "),
    "sqlite": ({"GATEWAY_DATABASE_URL": "sqlite:///secret.db"}, "worker_needs_postgresql: "),
    "lite": ({"GATEWAY_DATABASE_URL": POSTGRESQL}, "worker_needs_milvus: "),
}


@pytest.mark.parametrize(("env", "reason"), REFUSALS.values(), ids=REFUSALS)
async def test_a_worker_needs_parts_of_its_own(env: dict[str, str], reason: str, tmp_path: Path) -> None:
    """Exit 2 and one line, no address in it, and nothing was made."""
    folder = tmp_path / "data"
    refusal = await run_command("worker", env={"GATEWAY_DATA_DIR": str(folder), **env})
    assert refusal.code == 2
    (line,) = refusal.err.splitlines()
    assert line.startswith(reason)
    assert "secret" not in line
    assert not folder.exists()
