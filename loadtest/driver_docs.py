"""Fills the figures of docs/load.md from docs/benchmarks: ``python -m loadtest.driver_docs``.

Between ``<!-- figures NAME -->`` and ``<!-- end -->`` stands what ``NAME.json`` says, and nothing by hand.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loadtest import overload, repeated_report, rounds, stop_latency
from loadtest.driver_record import FOLDER

PAGE = FOLDER.parent / "load.md"

_SECTION = re.compile(r"(<!-- figures (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_NOT_YET = "Not run yet.\n"
_TABLES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "stop_latency": stop_latency.table,
    "overload": overload.table,
    "rounds": rounds.table,
    "repeated": repeated_report.table,
    "repeated_redis": repeated_report.table,
}


def filled(page: str, folder: Path = FOLDER) -> str:
    """The page with its figures as the files have them now. Raises KeyError for an unknown section."""
    return _SECTION.sub(lambda found: f"{found[1]}{_section(found[2], folder)}{found[3]}", page)


def _section(name: str, folder: Path) -> str:
    table = _TABLES[name]
    path = folder / f"{name}.json"
    if not path.exists():
        return _NOT_YET
    found = json.loads(path.read_text())
    return "\n".join(["```", f"$ {found['command']}", table(found), "```", *_machine(found, name), ""])


def _machine(found: Mapping[str, Any], name: str) -> Iterator[str]:
    machine = found["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items())
    yield ""
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}"
    yield f"{where}, Python {machine['python']}; {versions}."
    yield f"Raw figures: [benchmarks/{name}.json](benchmarks/{name}.json)."


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
