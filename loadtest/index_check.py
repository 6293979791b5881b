"""Whether a Milvus server's index finds the right rows under the forced filter, and how fast.

``python -m loadtest.index_check [--rows 100000 --dimension 384 --queries 200 --uri URI --json F]``. Writes
rows of several tenants, revisions and classes through the production store, asks it as callers do who may
see 50 %, 1 % and 0.01 % of them, and compares with exact search. Without ``--uri`` it runs a server of the
package ``milvus`` for each of ``--indexes`` and leaves nothing of it behind; at an address it leaves its
collection there, and compares the first index alone. Words have an index of their own: they are asked of the
first server and of Lite.
"""

import argparse
import asyncio
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import uvloop

from gateway.evaluation.page import dumped, write_docs
from gateway.evaluation.surroundings import commit
from loadtest.index_data import Corpus
from loadtest.index_measure import CALLERS, measured
from loadtest.index_report import ef_summary, summary, table
from loadtest.index_sides import INDEXES, Side, lite_side, server_side, written
from loadtest.overhead import machine

_PLACES = ("--json", "--write-docs")
_PACKAGES = ("qa-gateway", "grpcio", "milvus", "milvus-lite", "numpy", "pymilvus", "uvloop")


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=200, help="by vector, each case and series")
    parser.add_argument("--word-queries", type=int, default=50, help="by words, each case and series")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=10, help="questions, each case and route")
    parser.add_argument("--indexes", nargs="+", choices=INDEXES, default=list(INDEXES))
    parser.add_argument("--callers", nargs="+", type=int, default=list(CALLERS), help="how many ask at once")
    parser.add_argument("--lite-rows", type=int, default=5_000, help="on Milvus Lite, to compare; 0 for none")
    parser.add_argument("--search-batch", type=int, default=16, help="questions a call; 1 = each its own")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--uri", help="a running server; its collection of this space must not exist")
    parser.add_argument("--json", type=Path, help="where the raw figures go")
    parser.add_argument("--write-docs", type=Path, help="a docs folder whose page gets the figures")
    parser.add_argument("--name", default="index", help="of the figures in the docs")
    return parser.parse_args(given)


def command(given: Sequence[str]) -> str:
    """What makes the same figures again; where they are written doesn't matter."""
    words = iter(given)
    kept: list[str] = []
    for word in words:
        if word in _PLACES:
            next(words, None)
        elif not word.startswith(tuple(f"{place}=" for place in _PLACES)):
            kept.append(word)
    return shlex.join(["python", "-m", "loadtest.index_check", *kept])


async def checked(side: Side, rows: int, chosen: argparse.Namespace, *, words: bool = True) -> dict[str, Any]:
    """Fills one side and reads it, Lite with a quarter of the queries; raw figures and their summary."""
    load_before = os.getloadavg()
    corpus = Corpus(rows, chosen.dimension, chosen.seed)
    wrote = await written(side, corpus)
    print(f"{side.name}: {corpus.size} rows written", file=sys.stderr)
    share = 1 if side.name == "server" else 4
    queries = max(4, chosen.queries // share)
    found = await measured(
        side,
        corpus,
        queries=queries,
        word_queries=min(queries, max(4, chosen.word_queries // share)) if words else 0,
        rounds=chosen.rounds,
        warm=chosen.warm_up,
        callers=chosen.callers,
        efs=side.name == "server" and side.index == "HNSW",
    )
    return {
        "index": side.index,
        "written": wrote,
        **found,
        "summary": summary(found),
        "ef_summary": ef_summary(found),
        "load_average": {"before": load_before, "after": os.getloadavg()},
    }


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Every figure, as it goes into the JSON file."""
    load_before, began = os.getloadavg(), time.monotonic()
    found: dict[str, Any] = {}
    batch = chosen.search_batch
    indexes = chosen.indexes if chosen.uri is None else chosen.indexes[:1]
    with tempfile.TemporaryDirectory(prefix="qa-gateway-index-") as name:
        for place, index in enumerate(indexes):
            folder = Path(tempfile.mkdtemp(dir=name))
            async with server_side(folder, chosen.uri, index, search_batch=batch) as side:
                key = "server" if not place else f"server {index}"
                found[key] = await checked(side, chosen.rows, chosen, words=not place)
        if chosen.lite_rows:
            async with lite_side(Path(name) / "lite", search_batch=batch) as side:
                found["lite"] = await checked(side, chosen.lite_rows, chosen)
    return {
        "command": command(sys.argv[1:]),
        "commit": commit(),
        "machine": machine() | {"versions": {name: metadata.version(name) for name in _PACKAGES}},
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "seconds": round(time.monotonic() - began, 1),
        **found,
    }


def main() -> None:
    chosen = options()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(run(chosen))
    if chosen.json is not None:
        chosen.json.write_text(dumped(found))
    if chosen.write_docs is not None:
        write_docs(chosen.write_docs, chosen.name, found)
    print(table(found))


if __name__ == "__main__":
    main()
