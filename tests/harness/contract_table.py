"""The table that a test run ends with: contract suites against the implementations they ran over."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.contract.suites import IMPLEMENTATIONS, SUITES

_NODE = re.compile(r"(?:^|/)contract/(test_\w+)\.py::[^\[]+\[(.*)\]$")


def place(nodeid: str) -> tuple[str, str] | None:
    """The suite and the implementation of one test; None when it isn't one of a suite's."""
    found = _NODE.search(nodeid)
    if found is None:
        return None
    named = [name for name in found[2].split("-") if name in IMPLEMENTATIONS]
    return (found[1], named[0]) if len(named) == 1 else None


class ContractTable:
    """Counts the tests of each cell by their outcome, and shows them."""

    def __init__(self) -> None:
        self._outcomes: Counter[tuple[str, str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cell = place(report.nodeid)
        if cell is not None and (report.when == "call" or not report.passed):
            self._outcomes[*cell, report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._outcomes:
            terminalreporter.section("contract suites: tests passed over each implementation")
            for line in self.lines():
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        ports = max(len(suite.port) for suite in SUITES.values())
        yield f"{'port':{ports}}  " + "  ".join(f"{name:27}" for name in IMPLEMENTATIONS).rstrip()
        for module in sorted({module for module, _, _ in self._outcomes} & set(SUITES)):
            suite = SUITES[module]
            cells = (f"{self._cell(module, name):>6} {getattr(suite, name):20}" for name in IMPLEMENTATIONS)
            yield f"{suite.port:{ports}}  " + "  ".join(cells).rstrip()

    def _cell(self, module: str, name: str) -> str:
        passed, failed, skipped = (
            self._outcomes[module, name, outcome] for outcome in ("passed", "failed", "skipped")
        )
        return (
            "-" if not passed + failed + skipped else str(passed) + "!" * bool(failed) + "?" * bool(skipped)
        )
