"""Whether anything gets lost: thousands of clients that leave, and gateways that are killed in mid-answer.

``python -m loadtest.rounds [--aborts 10000 --kills 100 --json F]``. Aborts go to one ``serve`` on SQLite;
kills to two that share a quota over PostgreSQL and Redis. The scripted model runs in this process.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.driver_aborts import abort_rounds
from loadtest.driver_kills import KILL_SETTINGS, kill_rounds
from loadtest.driver_record import FOLDER, Frame, load_line, write
from loadtest.driver_servers import doors, learn, servers
from loadtest.driver_stops import SETTINGS
from loadtest.model_stub import ModelStub, serve_stub
from loadtest.overhead_text import DOCUMENTS
from loadtest.scenarios import questions
from tests.harness.process import gateway_process

FILE = FOLDER / "rounds.json"


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--aborts", type=int, default=10_000, help="clients that leave; 0 for none")
    parser.add_argument("--warm-up", type=int, default=500, help="such clients before anything counts")
    parser.add_argument("--kills", type=int, default=100, help="processes that are killed; 0 for none")
    parser.add_argument("--json", type=Path, default=FILE, help="where the figures go")
    return parser.parse_args(given)


def _model(stub: ModelStub) -> dict[str, str]:
    return {"GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_MODEL_NAME": "stub"}


async def aborts(folder: Path, rounds: int, warm_up: int) -> dict[str, Any]:
    asked = questions()
    async with (
        serve_stub() as stub,
        gateway_process(folder, env={**SETTINGS, **_model(stub)}) as gateway,
    ):
        await gateway.learn(DOCUMENTS, knowledge_base=asked.knowledge_base)
        return await abort_rounds(gateway, stub, asked, rounds, warm_up)


async def kills(folder: Path, rounds: int) -> dict[str, Any]:
    asked = questions()
    with servers(folder / "servers") as side:
        async with serve_stub() as stub:
            settings = {**KILL_SETTINGS, **_model(stub)}
            row = await doors(side, folder, 2, settings)
            async with row[0].open() as gateway:
                await learn(gateway, asked.knowledge_base)
            return await kill_rounds(row, stub, asked, rounds)


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    frame = Frame("loadtest.rounds")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="qa-gateway-rounds-") as name:
        if chosen.aborts:
            found["aborts"] = await aborts(Path(name) / "aborts", chosen.aborts, chosen.warm_up)
            print("aborts done", file=sys.stderr)
        if chosen.kills:
            found["kills"] = await kills(Path(name) / "kills", chosen.kills)
    return frame.filled(found)


def table(found: Mapping[str, Any]) -> str:
    lines: list[str] = []
    if "aborts" in found:
        lines += _abort_lines(found["aborts"])
    if "kills" in found:
        lines += _kill_lines(found["kills"])
    return "\n".join([*lines, load_line(found)])


def _abort_lines(one: Mapping[str, Any]) -> list[str]:
    ways = ", ".join(f"{way} {count}" for way, count in one["left"].items())
    lines = [f"{one['rounds']} clients left ({one['rounds_per_s']:g}/s): {ways}"]
    lines.append(f"{'held':28}{'before':>10}{'after':>10}")
    lines += [f"{name:28}{one['before'][name]:>10}{one['after'][name]:>10}" for name in one["before"]]
    lines.append(f"memory by tenth of the rounds, MiB: {one['memory_mib_by_tenth']}")
    lines.append(
        f"model calls {one['model_calls']}, still open {one['model_calls_open']}, "
        f"tokens after the close {one['tokens_after_close']}"
    )
    return lines


def _kill_lines(one: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{one['rounds']} kills, {one['streams_truncated']} streams cut off, {one['places']} places, "
        f"lease {one['lease_s']:g} s; let in beyond them: {one['beyond']}",
        f"{'seconds':38}{'p50':>9}{'p99':>9}{'max':>9}",
    ]
    for title, name in (
        ("from the kill until it serves again", "ready_s"),
        ("until every place is in use again", "full_s"),
        ("  of it after it served", "full_after_ready_s"),
    ):
        lines.append(f"{title:38}" + "".join(f"{one[name][c]:>9.2f}" for c in ("p50", "p99", "max")))
    keys = one["redis_keys"]
    lines.append(f"keys in Redis after the first round {keys['first']}, after the last {keys['last']}")
    lines.append(f"model calls {one['model_calls']}, still open {one['model_calls_open']}")
    return lines


def main() -> None:
    chosen = options()
    found = asyncio.run(run(chosen))
    write(chosen.json, found)
    print(table(found))


if __name__ == "__main__":
    main()
