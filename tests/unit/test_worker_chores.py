"""Chores beside a worker: a defect in one ends neither the worker nor the process around it."""

import anyio
from structlog.testing import capture_logs

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.ingest.worker import Worker

PATIENCE_S = 30


async def test_a_chore_with_a_defect_begins_again_and_the_others_go_on() -> None:
    """It is logged as a defect, with its name; tasks are still claimed."""
    begun: list[int] = []
    again, other = anyio.Event(), anyio.Event()

    async def failing() -> None:
        begun.append(1)
        if len(begun) == 1:
            raise ZeroDivisionError
        again.set()

    async def steady() -> None:
        await again.wait()
        other.set()

    worker = Worker(
        "w", MemoryCatalog(), {}, lease_s=60, attempts=1, retry_max_s=0.01, chores=[failing, steady]
    )
    with capture_logs() as lines, anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await other.wait()
            group.cancel_scope.cancel()
    [told] = [line for line in lines if line["event"] == "worker.chore_defect"]
    assert (told["log_level"], told["chore"].rpartition(".")[2]) == ("error", "failing")
