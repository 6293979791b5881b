"""How long a stop takes: a client's leaving until the model is left, a revocation until the last byte.

``python -m loadtest.stop_latency [--rounds 200 --json F]``. Three installations, one after the other: one
process on SQLite; two processes over PostgreSQL alone; two over PostgreSQL and Redis. The scripted model
runs in this process, so that both ends of a client's stop are on one clock.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtest.driver_record import FOLDER, Frame, load_line, write
from loadtest.driver_servers import doors, learn, servers
from loadtest.driver_stops import (
    SETTINGS,
    Asker,
    Moment,
    background,
    client_stops,
    revocation_stops,
)
from loadtest.model_stub import ModelStub, serve_stub
from loadtest.open_loop_report import spread
from loadtest.overhead_text import DOCUMENTS
from loadtest.scenarios import questions
from tests.harness.process import GatewayProcess, gateway_process
from tests.harness.sides import Servers

FILE = FOLDER / "stop_latency.json"
#: p99 at most, in ms; of a client's stop, and of a revocation by installation
CLIENT_AIM_MS = 50.0
AIMS_MS = {"sqlite": None, "postgresql": 500.0, "postgresql_redis": 250.0}
_TITLES = {
    "sqlite": "one process, SQLite",
    "postgresql": "two processes, PostgreSQL alone",
    "postgresql_redis": "two processes, PostgreSQL and Redis",
}


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200, help="clients that leave, in each phase")
    parser.add_argument("--revocations", type=int, default=60, help="each installation")
    parser.add_argument("--streams", type=int, default=3, help="answers of the revoked person, each process")
    parser.add_argument("--background", type=int, default=20, help="answers that run beside a busy stop")
    parser.add_argument("--only", choices=tuple(_TITLES), action="append", help="these installations alone")
    parser.add_argument("--json", type=Path, default=FILE, help="where the figures go")
    return parser.parse_args(given)


def _environment(stub: ModelStub) -> dict[str, str]:
    return {**SETTINGS, "GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_MODEL_NAME": "stub"}


async def left(stub: ModelStub, gateway: GatewayProcess, chosen: argparse.Namespace) -> dict[str, Any]:
    """Clients that leave a gateway with nothing else to do, then one that streams to others."""
    asked = questions()
    asker = Asker.of(gateway, asked)
    await client_stops(stub, asker, Moment.MID_STREAM, 5)  # the first ones pay for what is made once
    found = {}
    for moment in Moment:
        found[moment.value] = _left(*await client_stops(stub, asker, moment, chosen.rounds))
    others = Asker.of(gateway, asked, "others")
    async with background(stub, others, chosen.background):
        took = await client_stops(stub, asker, Moment.MID_STREAM, max(2, chosen.rounds // 4))
    found[f"mid-stream, {chosen.background} others streaming"] = _left(*took)
    return found


def _left(ms: Sequence[float], late_tokens: int) -> dict[str, Any]:
    return {"ms": spread(ms), "tokens_after_close": late_tokens}


async def revoked(
    gateways: Sequence[GatewayProcess], stub: ModelStub, chosen: argparse.Namespace
) -> dict[str, Any]:
    stops = await revocation_stops(gateways, stub, questions(), chosen.revocations, chosen.streams)
    return {
        "all_ms": spread(stop.ms for stop in stops),
        "same_process_ms": spread(stop.ms for stop in stops if stop.same),
        "other_process_ms": spread(stop.ms for stop in stops if not stop.same),
        "from_sending_it_ms": spread(stop.asked_ms for stop in stops),
        "own_measure": await _own_measure(gateways),
    }


async def _own_measure(gateways: Sequence[GatewayProcess]) -> dict[str, float]:
    """What ``gateway_revocation_stop_seconds`` says, over all processes: stops, and their mean in ms."""
    count = total = 0.0
    for gateway in gateways:
        count += await gateway.metric("gateway_revocation_stop_seconds_count")
        total += await gateway.metric("gateway_revocation_stop_seconds_sum")
    return {"n": count, "mean_ms": round(total / count * 1000, 2) if count else 0.0}


async def on_sqlite(stub: ModelStub, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    async with gateway_process(folder, env=_environment(stub)) as gateway:
        await gateway.learn(DOCUMENTS, knowledge_base=questions().knowledge_base)
        return {
            "client_left": await left(stub, gateway, chosen),
            "revoked": await revoked([gateway], stub, chosen),
        }


async def on_servers(
    stub: ModelStub, side: Servers, folder: Path, chosen: argparse.Namespace, without: Sequence[str]
) -> dict[str, Any]:
    async with _two(side, folder, _environment(stub), without) as gateways:
        await learn(gateways[0], questions().knowledge_base)
        return {"revoked": await revoked(gateways, stub, chosen)}


@contextlib.asynccontextmanager
async def _two(
    side: Servers, folder: Path, settings: Mapping[str, str], without: Sequence[str]
) -> AsyncIterator[list[GatewayProcess]]:
    async with contextlib.AsyncExitStack() as stack:
        found = await doors(side, folder, 2, settings, without)
        yield [await stack.enter_async_context(door.open()) for door in found]


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    frame = Frame("loadtest.stop_latency")
    wanted = chosen.only or list(_TITLES)
    installations: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="qa-gateway-stops-") as name:
        folder = Path(name)
        async with serve_stub() as stub:
            if "sqlite" in wanted:
                installations["sqlite"] = await on_sqlite(stub, folder / "sqlite", chosen)
                print("sqlite done", file=sys.stderr)
            if set(wanted) - {"sqlite"}:
                with servers(folder / "servers") as side:
                    for each in (one for one in wanted if one != "sqlite"):
                        without = () if each == "postgresql_redis" else ("GATEWAY_REDIS_URL",)
                        installations[each] = await on_servers(stub, side, folder / each, chosen, without)
                        print(f"{each} done", file=sys.stderr)
    return frame.filled({"settings": SETTINGS, "installations": installations})


def table(found: Mapping[str, Any]) -> str:
    lines = [f"{'ms':52}{'n':>6}{'p50':>9}{'p99':>9}{'max':>9}"]
    for name, one in found["installations"].items():
        for moment, stops in one.get("client_left", {}).items():
            said = stops["tokens_after_close"]
            lines.append(_row(f"client left, {moment}", stops["ms"], CLIENT_AIM_MS))
            lines += [f"    {said} tokens came after it"] if said else []
        lines.append(_row(f"revoked: {_TITLES[name]}", one["revoked"]["all_ms"], AIMS_MS[name]))
        if one["revoked"]["other_process_ms"]:
            lines.append(_row("  at the process that took it", one["revoked"]["same_process_ms"], None))
            lines.append(_row("  at the other one", one["revoked"]["other_process_ms"], None))
    return "\n".join([*lines, load_line(found)])


def _row(title: str, one: Mapping[str, float], aim: float | None) -> str:
    shown = f"{title:52}{one['n']:>6}" + "".join(f"{one[c]:>9.1f}" for c in ("p50", "p99", "max"))
    if aim is None:
        return shown
    return f"{shown}   aim: p99 at most {aim:g}   {'met' if one['p99'] <= aim else 'MISSED'}"


def main() -> None:
    chosen = options()
    found = asyncio.run(run(chosen))
    write(chosen.json, found)
    print(table(found))


if __name__ == "__main__":
    main()
