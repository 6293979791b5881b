"""The frame of every benchmark file: what was run, on what, under which load."""

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadtest.overhead import machine

#: where the figures of the documents come from
FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"


class Frame:
    """Begun before the run. ``filled`` gives the whole file's content afterwards."""

    def __init__(self, module: str) -> None:
        self._command = shlex.join(["python", "-m", module, *sys.argv[1:]])
        self._load_before = os.getloadavg()
        self._began = time.monotonic()

    def filled(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "command": self._command,
            "machine": machine(),
            "load_average": {"before": self._load_before, "after": os.getloadavg()},
            "seconds": round(time.monotonic() - self._began, 1),
            **found,
        }


def write(path: Path, found: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def load_line(found: Mapping[str, Any]) -> str:
    """The last line of every table."""
    before, after = (found["load_average"][when][0] for when in ("before", "after"))
    return f"load average {before:.2f} -> {after:.2f}, {found['seconds']:.0f} s"
