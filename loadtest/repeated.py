"""Repeated questions in an open loop: does a cache save the generations that arithmetic says it saves?

``python -m loadtest.repeated [--rate 10 --seconds 60 --redis --json F]``. One gateway before a scripted
model, or with ``--redis`` two over PostgreSQL and Redis. ``qa-gateway capacity`` reads /metrics before and
after, and watches meanwhile. Exit code 1: its generation starts are off by more than 2 %, or what the clients
and the model saw isn't what was counted.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.answer.reuse.keepable import Unkept
from gateway.evaluation.watching import saved
from gateway.observe.exposition import Growth
from gateway.observe.hooks import CacheRead
from loadtest.client_record import Record
from loadtest.driver_record import FOLDER, Frame, write
from loadtest.driver_servers import doors, servers
from loadtest.driver_target import CALLERS
from loadtest.open_loop_report import summary
from loadtest.open_loop_run import Target, drive
from loadtest.overhead_parts import Stub, stub_process
from loadtest.repeated_plan import DOCUMENTS, KNOWLEDGE_BASE, Mix, plan
from loadtest.repeated_report import checks, table
from loadtest.scenarios import Answer, Arrival
from tests.harness.process import GatewayProcess, eventually, gateway_process, run_command

FILE = FOLDER / "repeated.json"
FILE_REDIS = FOLDER / "repeated_redis.json"
#: at most, from the first question on: looking costs the machine something, too
_WATCHED_S = 60.0
#: of each process, outside the run: the first ones pay for what is made once
_FIRST_QUESTIONS = 3
_ANSWER = Answer(words=40, first_word_ms=200, word_ms=20)
#: the cache as it comes; caps and rates so large that a busy machine doesn't decide
_SETTINGS = {
    "GATEWAY_ANSWER_CACHE_TTL_S": "600",
    "GATEWAY_ANSWER_CACHE_REFUSAL_TTL_S": "30",
    "GATEWAY_ANSWER_CACHE_CAP_MS": "1000",
    "GATEWAY_ANSWER_SHARING": "true",
    "GATEWAY_REQUESTS_PER_MINUTE": "100000",
    "GATEWAY_CATALOG_CAP_MS": "5000",
    "GATEWAY_EMBED_CAP_MS": "5000",
    "GATEWAY_RETRIEVAL_CAP_MS": "5000",
    "GATEWAY_RERANK_CAP_MS": "5000",
    "GATEWAY_EMBEDDING_WAIT_MS": "5000",
    "GATEWAY_RETRIEVAL_WAIT_MS": "5000",
    "GATEWAY_RERANK_WAIT_MS": "5000",
    "GATEWAY_FIRST_TOKEN_CAP_MS": "10000",
    "GATEWAY_TOTAL_CAP_MS": "60000",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One gateway of one or several processes, and its model."""

    stub: Stub
    gateways: Sequence[GatewayProcess]


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=10, help="questions a second")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeated", type=float, default=0.8, help="share that was asked before")
    parser.add_argument("--unanswerable", type=float, default=0.1, help="share of the others")
    parser.add_argument("--redis", action="store_true", help="two processes over PostgreSQL and Redis")
    parser.add_argument("--max-lag-ms", type=float, default=10, help="the driver's own p99 at most")
    parser.add_argument("--json", type=Path, help="where the figures go")
    return parser.parse_args(given)


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    frame = Frame("loadtest.repeated")
    mix = Mix(chosen.rate, chosen.seconds, chosen.seed, chosen.repeated, chosen.unanswerable)
    arrivals = plan(mix)
    with tempfile.TemporaryDirectory(prefix="qa-gateway-repeated-") as name:
        async with _site(Path(name), shared=chosen.redis) as site:
            found = await asked(site, Path(name), arrivals, mix, chosen.max_lag_ms)
    return frame.filled({"store": "redis" if chosen.redis else "memory", "settings": _SETTINGS, **found})


@asynccontextmanager
async def _site(folder: Path, *, shared: bool) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        stub = await stack.enter_async_context(stub_process(folder / "stub"))
        env = {**_SETTINGS, "GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_MODEL_NAME": "stub"}
        if shared:
            side = stack.enter_context(servers(folder / "servers"))
            found = [
                await stack.enter_async_context(door.open())
                for door in await doors(side, folder / "doors", 2, env)
            ]
        else:
            found = [await stack.enter_async_context(gateway_process(folder / "gateway", env=env))]
        await found[0].learn(DOCUMENTS, knowledge_base=KNOWLEDGE_BASE)
        for gateway in found * _FIRST_QUESTIONS:
            await gateway.ask("What does the desk do?", knowledge_base=KNOWLEDGE_BASE)
        await stub.forget(0)
        await stub.script(**_ANSWER.script())
        yield Site(stub, found)


async def asked(
    site: Site, folder: Path, arrivals: Sequence[Arrival], mix: Mix, lag_p99_ms: float
) -> dict[str, Any]:
    """The figures of one run, once nothing runs any more."""
    before, began = await _saved(site, folder, "before"), time.monotonic()
    async with asyncio.TaskGroup() as both:
        watching = both.create_task(_watched(site, min(mix.seconds, _WATCHED_S)))
        records = await _driven(site, arrivals)
    await eventually(lambda: _idle(site))
    seconds = time.monotonic() - began
    after = await _saved(site, folder, "after")
    found = {
        "mix": asdict(mix),
        "driver": summary(records, seconds=mix.seconds, lag_p99_ms=lag_p99_ms),
        "clients": _seen_by_clients(arrivals, records),
        "model_calls": await site.stub.chats(),
        "cache": _counted(saved(before, after)),
        "capacity": await _capacity(_files(before, after), "--seconds", f"{seconds:.3f}"),
        "watched": watching.result(),
    }
    return {**found, "checks": checks(found)}


async def _driven(site: Site, arrivals: Sequence[Arrival]) -> list[Record]:
    """Every process gets its turn; the records are in the order of the arrivals."""
    count = len(site.gateways)
    turns = [drive(_target(gateway), arrivals[number::count]) for number, gateway in enumerate(site.gateways)]
    records: list[Record | None] = [None] * len(arrivals)
    for number, its in enumerate(await asyncio.gather(*turns)):
        records[number::count] = its
    return [record for record in records if record is not None]


def _target(gateway: GatewayProcess) -> Target:
    tokens = [gateway.token(subject=f"caller-{number}") for number in range(CALLERS)]
    return Target(gateway.port, tokens, KNOWLEDGE_BASE)


def _seen_by_clients(arrivals: Sequence[Arrival], records: Sequence[Record]) -> dict[str, int]:
    """``distinct`` are questions that were answered at least once: what would do if none were made twice."""
    answered = [
        (one.question, record) for one, record in zip(arrivals, records, strict=True) if record.deltas
    ]
    return {
        "asked": len(records),
        "cached": sum(record.cached for record in records),
        "distinct": len({question for question, _ in answered}),
    }


def _counted(growth: Growth) -> dict[str, dict[str, float]]:
    """Looks for kept answers, and what became of whole ones, by result."""
    results = {"gateway_cache_total": map(str, CacheRead), "gateway_cache_writes_total": ("kept", *Unkept)}
    return {
        name: {str(result): count for result in labels if (count := growth.of(name, result=str(result)))}
        for name, labels in results.items()
    }


async def _idle(site: Site) -> bool:
    return not any([await gateway.metric("gateway_active_streams") for gateway in site.gateways])


async def _saved(site: Site, folder: Path, name: str) -> list[Path]:
    files = []
    for number, gateway in enumerate(site.gateways):
        files.append(folder / f"{name}-{number}.txt")
        files[-1].write_text((await gateway.call("GET", "/metrics")).text)
    return files


def _files(before: Sequence[Path], after: Sequence[Path]) -> list[str]:
    pairs = zip(before, after, strict=True)
    return [word for first, last in pairs for word in ("--before", str(first), "--after", str(last))]


async def _watched(site: Site, seconds: float) -> Mapping[str, Any]:
    urls = [word for gateway in site.gateways for word in ("--url", gateway.base_url)]
    return await _capacity(urls, "--seconds", f"{seconds:.3f}")


async def _capacity(where: Sequence[str], *more: str) -> Mapping[str, Any]:
    ended = await run_command("capacity", *where, *more, "--json")
    if ended.code:
        raise RuntimeError(f"qa-gateway capacity: {ended.err}")
    (found,) = ended.lines
    return dict(found)


def main() -> int:
    chosen = options()
    found = asyncio.run(run(chosen))
    write(chosen.json or (FILE_REDIS if chosen.redis else FILE), found)
    print(table(found))
    return 0 if all(one["met"] for one in found["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
