"""FLT-6, and the promise of the shared quota: never more calls than the limit, whatever becomes of Redis."""

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.faults.city import LIMIT, Answered, City, counted, most_at_once
from tests.harness.process import eventually

pytestmark = pytest.mark.asyncio(loop_scope="package")

PATIENCE_S = 240
ASKERS = 3 * LIMIT
Note = Callable[[str], None]
TOKENS = [f"word{n} " for n in range(10)]


class Crowd:
    """Askers of one tenant who ask again and again, until told to stop."""

    def __init__(self, city: City) -> None:
        self._city = city
        self._names = itertools.count()
        self.answers: list[Answered] = []
        self.stopping = False

    async def ask_on(self) -> None:
        while not self.stopping:
            self.answers.append(await self._city.ask(subject=f"asker-{next(self._names)}"))
            await anyio.sleep(0.05)

    async def until_answered(self, more: int) -> None:
        """Returns when so many further questions have been answered whole."""
        so_far = sum(answer.whole for answer in self.answers)

        async def enough() -> bool:
            return sum(answer.whole for answer in self.answers) >= so_far + more

        await eventually(enough)


@asynccontextmanager
async def asking(city: City) -> AsyncIterator[Crowd]:
    """A crowd that asks while the block runs; in the end each has the answer to its last question."""
    crowd = Crowd(city)
    async with anyio.create_task_group() as tasks:
        for _ in range(ASKERS):
            tasks.start_soon(crowd.ask_on)
        yield crowd
        crowd.stopping = True


@pytest.mark.fault("FLT-6")
async def test_a_redis_that_hangs_lets_nothing_in_and_comes_back(city: City, evidence: Note) -> None:
    """While it hangs no call begins, on either gateway; then answers again, without a restart."""
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(tokens=[*TOKENS, "[1]"], cadence_ms=50)
        async with asking(city) as crowd:
            await crowd.until_answered(LIMIT)
            city.town.redis.pause()
            await eventually(lambda: _refuses(city))
            city.town.redis.resume()
            await crowd.until_answered(LIMIT)
        most = most_at_once(await city.calls())
    assert most <= LIMIT
    evidence(f"limit {LIMIT}; at most {most} calls at once, before and after; {counted(crowd.answers)}")


@pytest.mark.soak
@pytest.mark.fault("FLT-6")
async def test_the_global_limit_holds_while_redis_and_processes_fail(city: City, evidence: Note) -> None:
    """Redis paused, flushed and stopped, a process killed: at no moment more calls than the limit at the
    model, and answers again after each.
    """
    with anyio.fail_after(PATIENCE_S):
        await city.script_model(tokens=[*TOKENS, "[1]"], cadence_ms=100)
        async with asking(city) as crowd:
            await crowd.until_answered(LIMIT)
            city.town.redis.pause()
            await eventually(lambda: _refuses(city))
            city.town.redis.resume()
            await crowd.until_answered(LIMIT)
            await city.flush_redis()
            await crowd.until_answered(LIMIT)
            await city.town.gateways[0].kill()
            await crowd.until_answered(LIMIT)
            await city.town.gateways[0].start()
            city.town.redis.stop()
            await eventually(lambda: _refuses(city))
            city.town.redis.start()
            await crowd.until_answered(LIMIT)
        calls = await city.calls()
    most = most_at_once(calls)
    assert most <= LIMIT
    assert most >= LIMIT - 1, "it was used as well"
    evidence(
        f"limit {LIMIT}; {len(calls)} calls, at most {most} at once while Redis was paused, flushed, stopped "
        f"and a gateway killed; {counted(crowd.answers)}"
    )


async def _refuses(city: City) -> bool:
    return (await city.problem(city.town.gateways[1])).get("code") == "quota_unavailable"
