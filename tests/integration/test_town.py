"""The town of local processes: it answers through nginx, loses a gateway, gets it back, leaves nothing."""

import asyncio
import signal
import sys
from pathlib import Path

import anyio
import psutil
import pytest

from loadtest.town import Town, town
from loadtest.town_resident import Resident
from tests.harness.process import eventually, gone, refused
from tests.harness.wire import ask
from tests.integration.production_world import QUESTION

PATIENCE_S = 600
_STUB = (sys.executable, "-m", "loadtest.model_stub")


async def test_a_resident_is_stopped_killed_and_started_again(tmp_path: Path) -> None:
    """Ready each time it has started, gone each time it has ended."""
    resident = Resident("model", tmp_path, (), {}, _STUB)
    with anyio.fail_after(PATIENCE_S):
        await resident.start()
        first = resident.pid
        port = int(resident.ready["base_url"].rpartition(":")[2].partition("/")[0])
        assert not await refused(port)
        resident.pause()

        async def stopped() -> bool:
            return psutil.Process(first).status() == psutil.STATUS_STOPPED

        await eventually(stopped)
        resident.resume()
        assert await resident.stop() == 0
        assert await refused(port)
        with pytest.raises(RuntimeError, match="is stopped"):
            resident.send(signal.SIGTERM)
        await resident.start()
        assert resident.pid != first
        await resident.kill()
        await resident.start()
        last = resident.pid
        await resident.aclose()
        await gone(last)


async def test_a_resident_that_does_not_start_says_why(tmp_path: Path) -> None:
    """With its own words."""
    with pytest.raises(RuntimeError, match=r"model has ended: (?s:.*)--port"):
        await Resident("model", tmp_path, ("--port", "none"), {}, _STUB).start()


@pytest.mark.soak
async def test_a_town_answers_while_a_gateway_is_gone(tmp_path: Path) -> None:
    """Killed, then stopped in order, then both are back; questions to nginx are answered all the while."""
    with anyio.fail_after(PATIENCE_S):
        async with town(tmp_path, quota_lease_s="2") as here:
            residents = [*here.gateways, here.worker, here.model]
            pids = [one.pid for one in residents]
            assert await answered(here) == [200] * 4
            await here.gateways[0].kill()
            assert await answered(here) == [200] * 4
            await here.gateways[0].start()
            assert await here.gateways[1].stop() == 0
            assert await answered(here) == [200] * 4
            await here.gateways[1].start()
            pids += [one.pid for one in here.gateways] + [here.milvus.pid, here.nginx.pid]
            port = here.nginx.port
        for pid in pids:
            await gone(pid)
        assert await refused(port)


async def answered(here: Town) -> list[int]:
    """The statuses of four questions at once, each of another asker."""
    tokens = [here.token(subject=f"asker-{number}") for number in range(4)]
    asked = await asyncio.gather(*(ask(here.nginx.port, token, QUESTION) for token in tokens))
    return [head.status for head, _ in asked]
