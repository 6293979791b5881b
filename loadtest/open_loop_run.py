"""The open loop itself: every question goes out when it is due, whatever became of the others."""

import asyncio
import errno
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.client_record import Ending, Record
from loadtest.client_stream import opened
from loadtest.scenarios import Arrival

#: between the call and the first arrival
_LEAD_S = 0.05
_OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
#: the code of a question that the driver itself couldn't ask
DRIVER_EXHAUSTED = "driver_exhausted"


@dataclass(frozen=True, slots=True)
class Target:
    """Where the questions go. Callers take turns, as each has a rate of its own."""

    port: int
    tokens: Sequence[str]
    knowledge_base: str
    host: str = "127.0.0.1"
    patience_s: float = 60.0


async def drive(target: Target, arrivals: Sequence[Arrival]) -> list[Record]:
    """One record an arrival, in their order; returns when the last client is through."""
    _allow_descriptors(len(arrivals))
    start = time.monotonic() + _LEAD_S
    asking: list[asyncio.Task[Record]] = []
    async with asyncio.TaskGroup() as clients:
        for number, arrival in enumerate(arrivals):
            await asyncio.sleep(max(0.0, start + arrival.at - time.monotonic()))
            token = target.tokens[number % len(target.tokens)]
            asking.append(clients.create_task(_asked(target, token, arrival, start + arrival.at)))
    return [task.result() for task in asking]


async def _asked(target: Target, token: str, arrival: Arrival, due: float) -> Record:
    lag_s = time.monotonic() - due
    body = {"question": arrival.question, "knowledge_base": target.knowledge_base}
    try:
        stream = await opened(target.port, token, body, arrival.manner, target.host)
    except OSError as error:
        code = DRIVER_EXHAUSTED if error.errno in _OUT_OF_DESCRIPTORS else "connect"
        last_ms = round((time.monotonic() - due) * 1000, 3)
        return Record(arrival.at, lag_s * 1000, Ending.UNREACHABLE, code=code, last_ms=last_ms)
    try:
        async with asyncio.timeout_at(asyncio.get_running_loop().time() + target.patience_s):
            await stream.over.wait()
    except TimeoutError:
        stream.give_up()
        await stream.over.wait()
    return stream.record(due, arrival.at, lag_s)


def _allow_descriptors(wanted: int) -> None:
    """As many as the system lets us have without asking anybody."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + 1024
    if hard != resource.RLIM_INFINITY:
        enough = min(enough, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
