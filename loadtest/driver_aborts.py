"""Connect-and-abort rounds against a running server, and what it holds before and after them."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from loadtest.client_manner import How, Leaving, Manner, Phase
from loadtest.client_stream import opened
from loadtest.model_stub import ModelStub
from loadtest.overhead_text import tokens
from loadtest.scenarios import Questions
from tests.harness.process import GatewayProcess, eventually

_AT_ONCE = 20
_WORDS = 2000
_MIB = 1024 * 1024
#: in each round of the mix another way to go; the times are those of somebody who doesn't wait for an answer
_MIX = [
    Leaving(phase, how, after_s=after_s, after_deltas=2)
    for phase, after_s in (
        (Phase.BEFORE_HEADERS, 0.0),
        (Phase.BEFORE_HEADERS, 0.005),
        (Phase.BEFORE_HEADERS, 0.02),
        (Phase.AFTER_META, 0.0),
        (Phase.MID_STREAM, 0.0),
    )
    for how in How
]


@dataclass(frozen=True, slots=True)
class Holding:
    """What a server holds: of itself, of its children, and by its own metrics."""

    descriptors: int
    threads: int
    memory_mib: float
    children_memory_mib: float
    streams: float
    places: float

    def more_than(self, other: "Holding") -> bool:
        """In anything that is counted; memory is for a person to judge."""
        mine = (self.descriptors, self.threads, self.streams, self.places)
        theirs = (other.descriptors, other.threads, other.streams, other.places)
        return any(one > another for one, another in zip(mine, theirs, strict=True))


async def holding(gateway: GatewayProcess) -> Holding:
    process = psutil.Process(gateway.pid)
    children = [child.memory_info().rss for child in process.children(recursive=True)]
    return Holding(
        descriptors=process.num_fds(),
        threads=process.num_threads(),
        memory_mib=round(process.memory_info().rss / _MIB, 1),
        children_memory_mib=round(sum(children) / _MIB, 1),
        streams=await gateway.metric("gateway_active_streams"),
        places=sum(taken for _, taken in await gateway.metrics("gateway_bulkhead_in_use")),
    )


async def _at_rest(gateway: GatewayProcess) -> Holding:
    """Once it says that it does nothing for anybody."""

    async def look() -> Holding | None:
        now = await holding(gateway)
        return None if now.streams or now.places else now

    found = await eventually(look)
    assert found is not None
    return found


async def abort_rounds(
    gateway: GatewayProcess, stub: ModelStub, asked: Questions, rounds: int, warm_up: int
) -> dict[str, Any]:
    """Every figure: what was held before and after, how clients left, what their model calls came to."""
    stub.script(tokens=tokens(_WORDS), cadence_ms=25)
    await _leave(gateway, asked, warm_up)
    before = await _at_rest(gateway)
    began, left, memory = time.monotonic(), Counter[str](), [before.memory_mib]
    for part in _parts(rounds, 10):
        left += await _leave(gateway, asked, part)
        memory.append(round(psutil.Process(gateway.pid).memory_info().rss / _MIB, 1))
    took_s = time.monotonic() - began
    after = await _after(gateway, before)
    return {
        "rounds": rounds,
        "rounds_per_s": round(rounds / took_s, 1),
        "left": dict(sorted(left.items())),
        "before": asdict(before),
        "after": asdict(after),
        "kept": after.more_than(before),
        "memory_mib_by_tenth": memory,
        "model_calls": len(stub.calls),
        "model_calls_open": sum(call.closed_at is None for call in stub.calls),
        "tokens_after_close": sum(call.tokens_after_close for call in stub.calls),
    }


def _parts(rounds: int, count: int) -> Iterator[int]:
    for number in range(count):
        yield rounds * (number + 1) // count - rounds * number // count


async def _after(gateway: GatewayProcess, before: Holding) -> Holding:
    """As soon as it holds no more than before; after a while whatever it holds."""

    async def look() -> Holding | None:
        now = await _at_rest(gateway)
        return None if now.more_than(before) else now

    try:
        found = await eventually(look, within_s=30)
    except TimeoutError:
        return await holding(gateway)
    assert found is not None
    return found


async def _leave(gateway: GatewayProcess, asked: Questions, rounds: int) -> Counter[str]:
    """So many clients, a few at a time; how far each had come, or what its answer was instead."""
    turns = iter(range(rounds))
    token = gateway.token()
    left: Counter[str] = Counter()

    async def client() -> None:
        for turn in turns:
            left[await _one(gateway.port, token, asked, turn)] += 1

    async with asyncio.TaskGroup() as clients:
        for _ in itertools.repeat(None, _AT_ONCE):
            clients.create_task(client())
    return left


async def _one(port: int, token: str, asked: Questions, turn: int) -> str:
    question = asked.answerable[turn % len(asked.answerable)]
    body = {"question": question, "knowledge_base": asked.knowledge_base}
    stream = await opened(port, token, body, Manner(leaving=_MIX[turn % len(_MIX)]))
    async with asyncio.timeout(60):
        await stream.over.wait()
    if stream.left is not None:
        return stream.left.value
    return f"not left: {stream.ending} {stream.code}"
