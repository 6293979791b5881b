"""One stop after the other, timed: clients that leave, and people whose rights end in mid-answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import anyio
import httpx2

from loadtest.client_manner import How
from loadtest.client_record import Ending
from loadtest.client_stream import Stream, opened
from loadtest.model_stub import ModelStub
from loadtest.overhead_text import tokens
from loadtest.scenarios import Questions
from tests.harness.process import GatewayProcess

#: long enough for a busy machine; a stop that takes longer ends the run
_PATIENCE_S = 30.0
_LONG_MS = 120_000.0
_ENDLESS_WORDS = 5000

#: room for all that is asked here, and caps that no stop waits for
SETTINGS = {
    "GATEWAY_REQUESTS_PER_MINUTE": "1000000",
    "GATEWAY_GENERATION_CONCURRENCY": "256",
    "GATEWAY_QUOTA_CONCURRENCY": "256",
    "GATEWAY_EMBED_CAP_MS": "15000",
    "GATEWAY_RETRIEVAL_CAP_MS": "15000",
    "GATEWAY_CATALOG_CAP_MS": "15000",
    "GATEWAY_CONNECT_CAP_MS": "15000",
    "GATEWAY_EMBEDDING_WAIT_MS": "15000",
    "GATEWAY_RETRIEVAL_WAIT_MS": "15000",
    "GATEWAY_FIRST_TOKEN_CAP_MS": "120000",
    "GATEWAY_IDLE_CAP_MS": "120000",
    "GATEWAY_TOTAL_CAP_MS": "600000",
    "GATEWAY_MODEL_CONTEXT_TOKENS": "65536",
    "GATEWAY_MAX_OUTPUT_TOKENS": "32768",
}


class Moment(StrEnum):
    """Where the model is when its client leaves."""

    BEFORE_HEADERS = "before the model's headers"
    BEFORE_FIRST_TOKEN = "before the first token"
    MID_STREAM = "mid-stream"
    SILENT = "mid-stream, the model silent"


_SCRIPTS: Mapping[Moment, Mapping[str, Any]] = {
    Moment.BEFORE_HEADERS: {"header_delay_ms": _LONG_MS},
    Moment.BEFORE_FIRST_TOKEN: {"first_token_ms": _LONG_MS},
    Moment.MID_STREAM: {"cadence_ms": 20},
    Moment.SILENT: {"stall_after_tokens": 5},
}


@dataclass(frozen=True, slots=True)
class Asker:
    """Opens streams of one caller at one gateway."""

    gateway: GatewayProcess
    asked: Questions
    token: str

    @classmethod
    def of(cls, gateway: GatewayProcess, asked: Questions, subject: str = "ann") -> "Asker":
        return cls(gateway, asked, gateway.token(subject=subject))

    async def ask(self, number: int = 0) -> Stream:
        question = self.asked.answerable[number % len(self.asked.answerable)]
        body = {"question": question, "knowledge_base": self.asked.knowledge_base}
        return await opened(self.gateway.port, self.token, body)


@asynccontextmanager
async def background(stub: ModelStub, asker: Asker, streams: int) -> AsyncIterator[None]:
    """So many answers run meanwhile, 50 words a second each."""
    stub.script(tokens=tokens(_ENDLESS_WORDS), cadence_ms=20)
    running = [await asker.ask(number) for number in range(streams)]
    for stream in running:
        await _within(stream.speaking)
        _check(stream)
    try:
        yield
    finally:
        for stream in running:
            stream.leave(How.FIN)
        for stream in running:
            await _within(stream.over)


async def client_stops(stub: ModelStub, asker: Asker, moment: Moment, rounds: int) -> tuple[list[float], int]:
    """ms from the client's close to the upstream's end for each, FIN and RST by turns; and the tokens
    that the model said after it. The stub runs in this process, so both moments are on one clock.
    """
    stub.script(tokens=tokens(_ENDLESS_WORDS), **_SCRIPTS[moment])
    took, late_tokens = [], 0
    for number in range(rounds):
        with anyio.fail_after(_PATIENCE_S):
            seconds, late = await _client_stop(stub, asker, moment, number)
        took.append(seconds * 1000)
        late_tokens += late
    return took, late_tokens


async def _client_stop(stub: ModelStub, asker: Asker, moment: Moment, number: int) -> tuple[float, int]:
    begun = len(stub.calls)
    stream = await asker.ask(number)
    await _either(stub.until(lambda seen: len(seen.calls) > begun), stream.over.wait())
    _check(stream)
    call = stub.calls[begun]
    if moment is Moment.BEFORE_FIRST_TOKEN:
        await stream.opened.wait()
    elif moment is not Moment.BEFORE_HEADERS:
        await stream.speaking.wait()
    _check(stream)
    stream.leave(tuple(How)[number % 2])
    assert stream.left_at is not None
    await stub.until(lambda _: call.closed_at is not None)
    await stream.over.wait()
    assert call.closed_at is not None
    return call.closed_at - stream.left_at, call.tokens_after_close


@dataclass(frozen=True, slots=True)
class Stopped:
    """ms from the revocation's acceptance, as the database's clock has it, to the last byte at the client.

    ``asked_ms`` counts from the moment the revocation was sent. ``same`` says whether the process that
    took it was the one that streamed.
    """

    same: bool
    ms: float
    asked_ms: float


async def revocation_stops(
    gateways: Sequence[GatewayProcess], stub: ModelStub, asked: Questions, rounds: int, streams: int
) -> list[Stopped]:
    """In each round ``streams`` answers of one person run at every gateway, and his rights end at one."""
    stub.script(tokens=tokens(_ENDLESS_WORDS), cadence_ms=20)
    stops: list[Stopped] = []
    for number in range(rounds):
        with anyio.fail_after(_PATIENCE_S):
            stops += await _revocation_stop(gateways, asked, number, streams)
    return stops


async def _revocation_stop(
    gateways: Sequence[GatewayProcess], asked: Questions, number: int, streams: int
) -> list[Stopped]:
    subject = f"reader-{number}"
    running = [
        (gateway, await Asker.of(gateway, asked, subject).ask(place))
        for gateway in gateways
        for place in range(streams)
    ]
    for _, stream in running:
        await stream.speaking.wait()
        _check(stream)
    door = gateways[number % len(gateways)]
    asked_at = time.monotonic()
    await _revoke(door, subject)
    epoch = time.time() - time.monotonic()
    stops = []
    for gateway, stream in running:
        await stream.over.wait()
        if stream.ending is not Ending.REVOKED or stream.last_byte_at is None:
            raise RuntimeError(f"a stream ended otherwise: {stream.ending} {stream.code}")
        ms = (stream.last_byte_at + epoch - float(stream.data["revoked_at"])) * 1000
        stops.append(Stopped(gateway is door, ms, (stream.last_byte_at - asked_at) * 1000))
    return stops


async def _revoke(gateway: GatewayProcess, subject: str) -> None:
    body = {"kind": "user", "id": subject, "reason": "a benchmark"}
    headers = {"Authorization": f"Bearer {gateway.token('revoke', subject='officer')}"}
    async with httpx2.AsyncClient(base_url=gateway.base_url, trust_env=False, timeout=60) as http:
        (await http.post("/v1/revocations", json=body, headers=headers)).raise_for_status()


def _check(stream: Stream) -> None:
    """Raises when it has ended before it was stopped."""
    if stream.over.is_set():
        raise RuntimeError(f"a stream broke: {stream.ending} {stream.status} {stream.code} {stream.data}")


async def _either(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns with the first of them."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def _within(event: asyncio.Event) -> None:
    with anyio.fail_after(_PATIENCE_S):
        await event.wait()
