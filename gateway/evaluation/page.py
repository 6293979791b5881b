"""The page: fills the figures of docs/retrieval.md from docs/benchmarks, and writes those files.

Between ``<!-- figures NAME -->`` and ``<!-- end -->`` stands what ``NAME.json`` says, and nothing by hand.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.evaluation import golden, index_table, report, targets

_PAGE = "retrieval.md"
_FOLDER = "benchmarks"
_SECTION = re.compile(r"(<!-- figures ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_LIST = re.compile(r"\[[^][{}]*\]")
#: what follows a name where the page wants the targets and not all figures
_TARGETS = "-targets"
_NOT_YET = "Not run yet.\n"


def filled(page: str, folder: Path) -> str:
    """The page with its figures as the files of ``folder`` have them."""
    return _SECTION.sub(lambda found: f"{found[1]}{_section(found[2], folder)}{found[3]}", page)


def _section(name: str, folder: Path) -> str:
    wanted, name = name, name.removesuffix(_TARGETS)
    path = folder / f"{name}.json"
    if not path.exists():
        return _NOT_YET
    found = json.loads(path.read_text("utf-8"))
    if wanted.endswith(_TARGETS):
        return targets.markdown(found)
    if "each" in found:
        return golden.markdown(found)
    raw = f"\nRaw figures: [{_FOLDER}/{name}.json]({_FOLDER}/{name}.json).\n"
    if index_table.is_index_check(found):
        return index_table.markdown(found) + raw
    shown = "".join(f"![{plot}]({_FOLDER}/{name}-{plot})\n" for plot in report.plots(found))
    return f"{report.markdown(found)}\n{shown}{raw}"


def write_docs(docs: Path, name: str, found: Mapping[str, Any]) -> None:
    """``found`` becomes ``benchmarks/NAME.json`` with its plots, and the page says it."""
    folder = docs / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(dumped(found), "utf-8")
    if "sets" in found:
        for plot, svg in report.plots(found).items():
            (folder / f"{name}-{plot}").write_text(svg, "utf-8")
    page = docs / _PAGE
    page.write_text(filled(page.read_text("utf-8"), folder), "utf-8")


def write_report(
    folder: Path, name: str, found: Mapping[str, Any], shown: Callable[[Mapping[str, Any]], str]
) -> None:
    """JSON and Markdown, and plots where there are curves."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(dumped(found), "utf-8")
    (folder / f"{name}.md").write_text(shown(found), "utf-8")
    if "sets" in found:
        for plot, svg in report.plots(found).items():
            (folder / plot).write_text(svg, "utf-8")


def dumped(found: Mapping[str, Any]) -> str:
    """JSON with each list of plain values on one line."""
    text = json.dumps(found, indent=1, ensure_ascii=False)
    return _LIST.sub(lambda one: re.sub(r"\s+", " ", one.group()), text) + "\n"
