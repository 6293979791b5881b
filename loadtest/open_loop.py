"""Load in an open loop: questions go out when they are due, and count from then, however slow the answers.

``python -m loadtest.open_loop --scenario office`` brings a scripted model and a gateway along;
``--url U --tokens-file F`` (a token a line) drives one that runs. Exit code 1: the driver itself was late.
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from loadtest.driver_record import Frame, load_line, write
from loadtest.driver_target import bench
from loadtest.open_loop_report import LAG_P99_MS, summary, table
from loadtest.open_loop_run import Target, drive
from loadtest.scenarios import FILE, Scenario, names, plan, questions, scenario


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenario", default="steady", help="a name of scenarios.json")
    parser.add_argument("--scenarios", type=Path, default=FILE, help="another file of the same form")
    parser.add_argument("--rate", type=float, help="questions a second, instead of the scenario's")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--arrivals", choices=("constant", "poisson"))
    parser.add_argument("--url", help="a running gateway; without it the run brings its own")
    parser.add_argument("--tokens-file", type=Path, help="one token a line, of callers who take turns")
    parser.add_argument("--knowledge-base", help="instead of the scenarios' own")
    parser.add_argument("--patience", type=float, default=60, help="seconds a client waits for the end")
    parser.add_argument("--settle", type=float, default=0, help="seconds that don't count as goodput")
    parser.add_argument("--max-lag-ms", type=float, default=LAG_P99_MS, help="the driver's own p99 at most")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--records", action="store_true", help="with every single question in the file")
    chosen = parser.parse_args(given)
    if chosen.scenario not in names(chosen.scenarios):
        parser.error(f"--scenario is one of {', '.join(names(chosen.scenarios))}")
    if (chosen.url is None) != (chosen.tokens_file is None):
        parser.error("--url and --tokens-file belong together")
    return chosen


def chosen_scenario(chosen: argparse.Namespace) -> Scenario:
    changes = {name: getattr(chosen, name) for name in ("rate", "seconds", "seed", "arrivals")}
    given = {name: value for name, value in changes.items() if value is not None}
    return scenario(chosen.scenario, chosen.scenarios, **given)


@contextlib.asynccontextmanager
async def _target(chosen: argparse.Namespace, what: Scenario, knowledge_base: str) -> AsyncIterator[Target]:
    """The one that was named, or one for this run alone."""
    if chosen.url is not None:
        url = urlsplit(chosen.url)
        tokens = chosen.tokens_file.read_text().split()
        yield Target(url.port or 80, tokens, knowledge_base, url.hostname or "127.0.0.1", chosen.patience)
        return
    async with bench({}, knowledge_base) as own:
        await own.stub.script(**what.answer.script())
        yield own.target


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    frame = Frame("loadtest.open_loop")
    what, asked = chosen_scenario(chosen), questions(chosen.scenarios)
    async with _target(chosen, what, chosen.knowledge_base or asked.knowledge_base) as target:
        records = await drive(target, plan(what, asked))
    figures = summary(records, seconds=what.seconds, settle_s=chosen.settle, lag_p99_ms=chosen.max_lag_ms)
    found = frame.filled({"scenario": asdict(what), "figures": figures})
    return found | ({"records": [asdict(record) for record in records]} if chosen.records else {})


def main() -> int:
    chosen = options()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(chosen))
    if chosen.json is not None:
        write(chosen.json, found)
    print(table(found["figures"]), load_line(found), sep="\n")
    return 0 if found["figures"]["valid"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
