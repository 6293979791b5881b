"""What the gateway costs beside a bare forwarder of the same bytes, measured side by side in one run.

``python -m loadtest.overhead [--streams 100 --rate 50 --seconds 10 --rounds 3 --json F]``. Starts a scripted
model, a bare forwarder and ``qa-gateway serve`` on free ports, drives both servers by turns, prints a table
and ends everything that it started.
"""

import argparse
import asyncio
import json
import os
import platform
import shlex
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from loadtest.overhead_parts import (
    Load,
    Stub,
    gateway_process,
    gateway_settings,
    learn,
    load_process,
    stub_process,
)
from loadtest.overhead_report import summary, table
from loadtest.overhead_round import Plan, run_round
from loadtest.overhead_text import tokens

_PACKAGES = (
    "qa-gateway",
    "aiohttp",
    "anyio",
    "httptools",
    "openai",
    "orjson",
    "sse-starlette",
    "starlette",
    "uvicorn",
    "uvloop",
)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=100, help="answers streaming at once")
    parser.add_argument("--rate", type=float, default=50, help="tokens a second the model says, each stream")
    parser.add_argument("--seconds", type=float, default=10, help="the measured time, each server and round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--arrivals", type=float, default=25, help="new streams a second")
    parser.add_argument("--asks", type=int, default=20, help="questions one by one, each server and round")
    parser.add_argument("--warm-up", type=int, default=5, help="the same, before anything counts")
    parser.add_argument("--idle-seconds", type=float, default=3, help="time to see what an idle server uses")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the gateway, as in COALESCE_MS=40",
    )
    parser.add_argument("--json", type=Path, help="where the raw figures go")
    return parser.parse_args()


def machine() -> dict[str, Any]:
    cpu = [
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    ]
    return {
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:  # not Linux
        return []


def given_settings(given: list[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    return {f"GATEWAY_{name.strip().upper()}": value for name, _, value in pairs}


async def catalog_reads(
    folder: Path, settings: dict[str, str], stub: Stub, load: Load, plan: Plan
) -> dict[str, float]:
    """SQLite statements a question, by their first word; what runs without questions is taken off."""
    notes = folder / "statements.txt"
    await stub.script(tokens=tokens(1))
    async with gateway_process(folder / "counted", settings, notes) as (_, target):
        for number in range(plan.warm_up):
            await load.ask(target, number)
        marks = [time.monotonic()]
        await asyncio.sleep(plan.idle_seconds)
        marks.append(time.monotonic())
        for number in range(plan.asks):
            await load.ask(target, number)
        await asyncio.sleep(plan.idle_seconds / 2)  # the audit entry is written after the last event
        marks.append(time.monotonic())
    noted = [line.split() for line in notes.read_text().splitlines()]
    counts = {word: _per_question(noted, word, marks, plan.asks) for word in {word for _, word in noted}}
    return {word: count for word, count in sorted(counts.items()) if count > 0}


def _per_question(noted: list[list[str]], word: str, marks: list[float], asks: int) -> float:
    at = [float(when) for when, what in noted if what == word]
    idle = sum(marks[0] <= when < marks[1] for when in at) / (marks[1] - marks[0])
    busy = sum(marks[1] <= when < marks[2] for when in at) - idle * (marks[2] - marks[1])
    return round(busy / asks, 1)


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Every figure, as it goes into the JSON file."""
    plan = Plan(
        streams=chosen.streams,
        rate=chosen.rate,
        seconds=chosen.seconds,
        idle_seconds=chosen.idle_seconds,
        arrivals=chosen.arrivals,
        asks=chosen.asks,
        warm_up=chosen.warm_up,
    )
    load_before, began = os.getloadavg(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qa-gateway-overhead-") as name:
        folder = Path(name)
        async with stub_process(folder / "stub") as stub, load_process() as load:
            settings = gateway_settings(stub, plan.streams) | given_settings(chosen.set)
            async with gateway_process(folder / "learning", settings) as (gateway, _):
                await learn(gateway)
            rounds = []
            for number in range(chosen.rounds):
                rounds.append(await run_round(number, folder, settings, stub, load, plan))
                print(f"round {number + 1} of {chosen.rounds} done", file=sys.stderr)
            reads = await catalog_reads(folder, settings, stub, load, plan)
    return {
        "command": shlex.join(["python", "-m", "loadtest.overhead", *sys.argv[1:]]),
        "machine": machine(),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "seconds": round(time.monotonic() - began, 1),
        "gateway_settings": {name: v for name, v in settings.items() if "BASE_URL" not in name},
        "rounds": rounds,
        "statements_per_question": reads,
    }


def main() -> None:
    chosen = options()
    found = asyncio.run(run(chosen))
    found["summary"] = summary(found["rounds"])
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
