"""More than it can take: goodput, rejections, lost streams and memory at 1, 2 and 5 times the capacity.

``python -m loadtest.overload [--places 8 --seconds 20 --json F]``. A gateway with that many places for
answers, before a scripted model: capacity is the best goodput of a short ramp. Each step is an open loop in
a process of its own; a step whose driver was late doesn't count.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from loadtest.arrivals import Arrivals
from loadtest.driver_record import FOLDER, Frame, load_line, write
from loadtest.driver_target import Bench, bench
from loadtest.scenarios import Answer, questions
from tests.harness.process import eventually

FILE = FOLDER / "overload.json"
#: goodput of the best at least, ms a rejection may take (p99), MiB that memory may grow by
AIMS = {"goodput": 0.95, "rejected_ms": 20.0, "memory_mib": 20.0}
_ANSWER = Answer(words=20, first_word_ms=200, word_ms=20)
#: shares of what the places alone would give, by Little's law
_RAMP = (0.6, 0.8, 0.9, 1.0, 1.1, 1.3)
_TIMES = (1, 2, 5)
_MIB = 1024 * 1024


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--places", type=int, default=8, help="answers at once")
    parser.add_argument("--seconds", type=float, default=20, help="each level")
    parser.add_argument("--ramp-seconds", type=float, default=8, help="each step of the ramp")
    parser.add_argument("--settle", type=float, default=2, help="seconds at the start that don't count")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--max-lag-ms", type=float, default=10, help="the driver's own p99 at most")
    parser.add_argument("--json", type=Path, default=FILE, help="where the figures go")
    return parser.parse_args(given)


def settings(places: int) -> dict[str, str]:
    """Few places; of rates and sessions so much that they don't decide."""
    return {
        "GATEWAY_GENERATION_CONCURRENCY": str(places),
        "GATEWAY_QUOTA_CONCURRENCY": str(4 * places),
        "GATEWAY_SSE_SESSIONS": "1000",
        "GATEWAY_REQUESTS_PER_MINUTE": "100000",
        "GATEWAY_FIRST_TOKEN_CAP_MS": "10000",
    }


@dataclass(frozen=True, slots=True)
class Step:
    """``rate`` questions a second for ``seconds``."""

    rate: float
    seconds: float
    seed: int
    arrivals: Arrivals = Arrivals.POISSON


async def driven(own: Bench, folder: Path, step: Step, chosen: argparse.Namespace) -> dict[str, Any]:
    """The figures of one step, driven from a process of its own, once nothing runs any more."""
    tokens, result = folder / "tokens.txt", folder / "step.json"
    tokens.write_text("\n".join(own.target.tokens))
    command = {
        "--scenario": "steady",
        "--arrivals": step.arrivals.value,
        "--rate": f"{step.rate:.4f}",
        "--seconds": f"{step.seconds:g}",
        "--seed": str(step.seed),
        "--settle": f"{chosen.settle:g}",
        "--max-lag-ms": f"{chosen.max_lag_ms:g}",
        "--url": own.gateway.base_url,
        "--tokens-file": str(tokens),
        "--json": str(result),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtest.open_loop"),
        *(word for pair in command.items() for word in pair),
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    figures: dict[str, Any] = json.loads(result.read_text())["figures"]
    result.unlink()
    await eventually(lambda: _idle(own))
    return figures


async def _idle(own: Bench) -> bool:
    return await own.gateway.metric("gateway_active_streams") == 0


def _memory_mib(own: Bench) -> float:
    return round(psutil.Process(own.gateway.pid).memory_info().rss / _MIB, 1)


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    frame = Frame("loadtest.overload")
    given = settings(chosen.places)
    async with bench(given, questions().knowledge_base) as own:
        await own.stub.script(**_ANSWER.script())
        with tempfile.TemporaryDirectory(prefix="qa-gateway-overload-") as name:
            return frame.filled(
                {"settings": given, "places": chosen.places, **await _measured(own, Path(name), chosen)}
            )


async def _measured(own: Bench, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    possible = chosen.places / (_ANSWER.first_word_ms + _ANSWER.words * _ANSWER.word_ms) * 1000
    ramp = []
    for share in _RAMP:
        step = Step(share * possible, chosen.ramp_seconds, chosen.seed, Arrivals.CONSTANT)
        ramp.append({"rate": step.rate, **await driven(own, folder, step, chosen)})
    capacity = max(one["goodput_per_s"] for one in ramp)
    print(f"capacity {capacity:g}/s", file=sys.stderr)
    memory, levels = _memory_mib(own), []
    for times in _TIMES:
        step = Step(times * capacity, chosen.seconds, chosen.seed + times)
        figures = await driven(own, folder, step, chosen)
        levels.append({"times": times, "rate": step.rate, **figures, "memory_mib": _memory_mib(own)})
        print(f"{times} x done", file=sys.stderr)
    best = max(one["goodput_per_s"] for one in [*ramp, *levels])
    for level in levels:
        level["goodput_of_best"] = round(level["goodput_per_s"] / best, 3)
    return {
        "possible_per_s": round(possible, 2),
        "capacity_per_s": capacity,
        "best_per_s": best,
        "memory_mib_before": memory,
        "ramp": ramp,
        "levels": levels,
    }


def table(found: Mapping[str, Any]) -> str:
    lines = [
        f"{found['places']} places, at most {found['possible_per_s']:g}/s by Little's law; capacity "
        f"{found['capacity_per_s']:g}/s, best {found['best_per_s']:g}/s",
        f"{'':8}{'asked/s':>9}{'good/s':>9}{'of best':>9}{'rejected':>10}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'lost':>6}{'MiB':>8}{'lag p99':>9}",
    ]
    lines += [_row(f"ramp {one['rate']:.1f}", one) for one in found["ramp"]]
    lines += [_row(f"{one['times']} x", one) for one in found["levels"]]
    return "\n".join([*lines, *verdicts(found), load_line(found)])


def _row(title: str, one: Mapping[str, Any]) -> str:
    rejected = one["rejected_ms"] or {"p50": 0.0, "p99": 0.0}
    return (
        f"{title:10}{one['asked_per_s']:>7.1f}{one['goodput_per_s']:>9.1f}"
        f"{one.get('goodput_of_best', 0):>9.1%}{one['outcomes']['rejected']:>10}{rejected['p50']:>9.1f}"
        f"{rejected['p99']:>9.1f}{one['lost']:>6}{one.get('memory_mib', 0):>8.1f}{one['lag_ms']['p99']:>9.1f}"
        + ("" if one["valid"] else "   NOT VALID")
    )


def verdicts(found: Mapping[str, Any]) -> list[str]:
    """Each aim beside what came, at 2 and 5 times the capacity."""
    over = [level for level in found["levels"] if level["times"] > 1]
    goodput = min(level["goodput_of_best"] for level in over)
    rejected = max((level["rejected_ms"] or {"p99": 0.0})["p99"] for level in over)
    lost = sum(level["lost"] for level in found["levels"])
    grown = max(level["memory_mib"] for level in over) - found["memory_mib_before"]
    return [
        _verdict(
            f"goodput {goodput:.1%} of the best",
            f"at least {AIMS['goodput']:.0%}",
            goodput >= AIMS["goodput"],
        ),
        _verdict(
            f"rejected within {rejected:.1f} ms (p99)",
            f"at most {AIMS['rejected_ms']:g}",
            rejected <= AIMS["rejected_ms"],
        ),
        _verdict(f"{lost} admitted streams lost", "none", lost == 0),
        _verdict(f"memory {grown:+.1f} MiB", f"at most {AIMS['memory_mib']:g}", grown <= AIMS["memory_mib"]),
    ]


def _verdict(what: str, aim: str, met: bool) -> str:
    return f"{what:44} aim: {aim:16} {'met' if met else 'MISSED'}"


def main() -> None:
    chosen = options()
    found = asyncio.run(run(chosen))
    write(chosen.json, found)
    print(table(found))


if __name__ == "__main__":
    main()
