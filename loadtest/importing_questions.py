"""Do people notice an import? Their questions' times while one runs, against those before and after it.

``python -m loadtest.importing_questions [--pages 2000 --every-ms 500 --json F]``. One gateway of embedded
parts with the sample knowledge base of one tenant; a question starts every so often whatever became of the
last one, and each is answered for its asker alone. All figures are of one run; only the ratio means anything.
Exit code 1: the p95 during the import is more than 1.5 times the other one, or a question failed.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gateway.samples import SampleDocument, load_samples
from loadtest.client_manner import STAYS
from loadtest.client_record import Ending, Record
from loadtest.driver_record import FOLDER, Frame, load_line, write
from loadtest.importing import timed, write_pages
from loadtest.open_loop_report import spread
from loadtest.open_loop_run import Target, drive
from loadtest.scenarios import Arrival
from tests.harness.process import GatewayProcess, gateway_process

FILE = FOLDER / "importing_questions.json"
#: p95 during an import, as a multiple of what it is otherwise
AIM = 1.5
_KNOWLEDGE_BASE = "handbook"
#: questions are begun in slices of this length; one in which the import ended counts for neither side
_SLICE_S = 5.0
_FIRST_QUESTIONS = 20
_RATES = {"GATEWAY_REQUESTS_PER_MINUTE": "100000"}


def options(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--page-bytes", type=int, default=6000)
    parser.add_argument("--every-ms", type=float, default=500, help="from one question to the next")
    parser.add_argument("--idle-s", type=float, default=60, help="before the import, and after it")
    parser.add_argument("--jobs", type=int, default=4, help="uploads at a time")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path, default=FILE, help="where the figures go")
    return parser.parse_args(given)


def documents() -> list[SampleDocument]:
    """The English samples of all knowledge bases that are valid for ever."""
    return [
        document
        for document in load_samples().documents
        if document.language == "en" and document.valid_from is None and document.valid_until is None
    ]


class Questions:
    """Questions that the samples answer, in turn, one every so many seconds."""

    def __init__(self, target: Target, every_s: float) -> None:
        paths = {document.path for document in documents()}
        self._all = itertools.cycle(
            sorted({q.question for q in load_samples().questions if q.document in paths})
        )
        self._target = target
        self._every_s = every_s

    async def asked(self, seconds: float) -> list[Record]:
        count = max(1, round(seconds / self._every_s))
        return await drive(
            self._target, [Arrival(n * self._every_s, next(self._all), STAYS) for n in range(count)]
        )

    async def asked_during(self, work: asyncio.Task[float]) -> list[Record]:
        records: list[Record] = []
        while not work.done():
            found = await self.asked(_SLICE_S)
            if not work.done():
                records += found
        return records


async def measured(home: Path, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    async with gateway_process(home, env={"GATEWAY_LOG_LEVEL": "warning", **_RATES}) as gateway:
        await gateway.learn({d.path: d.read() for d in documents()}, knowledge_base=_KNOWLEDGE_BASE)
        target = Target(gateway.port, [gateway.token()], _KNOWLEDGE_BASE)
        questions = Questions(target, chosen.every_ms / 1000)
        await questions.asked(_FIRST_QUESTIONS * chosen.every_ms / 1000)
        before = await questions.asked(chosen.idle_s)
        importing = asyncio.create_task(_import(gateway, folder, chosen.jobs))
        during = await questions.asked_during(importing)
        after = await questions.asked(chosen.idle_s)
        import_s = await importing
        assert await gateway.stop() == 0
    return report(before + after, during, import_s)


async def _import(gateway: GatewayProcess, folder: Path, jobs: int) -> float:
    options = ("--kb", "pages", "--allow", "group:staff", "--jobs", str(jobs))
    return await timed(gateway, "import", str(folder), *options)


def report(idle: Sequence[Record], during: Sequence[Record], import_s: float) -> dict[str, Any]:
    found = {"idle": _of(idle), "during": _of(during), "import_s": round(import_s, 1)}
    for name in ("first_delta_ms", "last_ms"):
        quiet, busy = (spread(getattr(r, name) for r in records) for records in (idle, during))
        found[f"{name}_p95_ratio"] = round(busy["p95"] / quiet["p95"], 2) if quiet and busy else None
    return found


def _of(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "endings": dict(Counter(str(record.ending) for record in records)),
        "codes": dict(Counter(record.code for record in records if record.code)),
        **{name: spread(getattr(r, name) for r in records) for name in ("first_delta_ms", "last_ms")},
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    for phase in ("idle", "during"):
        endings = ", ".join(f"{count} {ending}" for ending, count in found[phase]["endings"].items())
        yield f"{phase:<8} {endings}"
        for name in ("first_delta_ms", "last_ms"):
            yield f"  {name:<16} {found[phase][name]}"
    yield f"import: {found['import_s']} s"
    first, end = (found[f"{name}_p95_ratio"] for name in ("first_delta_ms", "last_ms"))
    yield f"p95 during / idle: first text {first}, end {end} (aim {AIM})"


async def main(chosen: argparse.Namespace) -> int:
    frame = Frame("loadtest.importing_questions")
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "pages"
        write_pages(folder, chosen)
        found = await measured(Path(home) / "gateway", folder, chosen)
    whole = frame.filled({"pages": chosen.pages, "every_ms": chosen.every_ms, **found})
    print("\n".join((*lines(found), load_line(whole))))
    write(chosen.json, whole)
    failed = set(found["during"]["endings"]) - {Ending.ANSWERED}
    return 1 if failed or found["last_ms_p95_ratio"] > AIM else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(options())))
