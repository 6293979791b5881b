"""The log: one JSON line an event, whoever wrote it, and no answer that depends on it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_FOREIGN = """
import logging
from gateway.observe.logging import configure_logging

configure_logging("INFO")
try:
    raise LookupError("a foreign failure")
except LookupError:
    logging.getLogger("uvicorn.error").exception("it broke")
"""

_FULL = """
import logging
from gateway.observe.logging import configure_logging, get_logger

configure_logging("INFO")
for _ in range(200):
    get_logger("server").info("server.starting", filler="x" * 500)
    logging.getLogger("uvicorn.error").warning("foreign")
print("answered", flush=True)
"""


def _run(program: str, **streams: Any) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: the configuration is the whole process's."""
    return subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=False, **streams
    )


def test_a_foreign_exception_is_one_line_with_its_traceback() -> None:
    """What uvicorn logs of a defect can be traced to its place."""
    ended = _run(_FOREIGN, stderr=subprocess.PIPE)
    (line,) = ended.stderr.splitlines()
    record = json.loads(line)
    assert (record["event"], record["level"]) == ("it broke", "error")
    assert "Traceback" in record["exception"]
    assert "LookupError: a foreign failure" in record["exception"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_log_lines_and_nothing_else() -> None:
    """Our own loggers and foreign ones: no call raises."""
    with open("/dev/full", "w") as full:
        ended = _run(_FULL, stderr=full)
    assert ended.stdout == "answered\n"
