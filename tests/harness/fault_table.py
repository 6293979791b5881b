"""The table that a run of ``tests/faults/`` ends with: row, result, evidence."""

import textwrap
from collections.abc import Iterator

import pytest

ROW, EVIDENCE = "fault.row", "fault.evidence"
_WIDTH = 110


class FaultTable:
    """Collects what tests with the fixture ``fault`` have noted, also in other processes."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        noted = [str(value) for name, value in report.user_properties if name == EVIDENCE]
        rows = [str(value) for name, value in report.user_properties if name == ROW]
        if rows and (report.when == "call" or not report.passed):
            self._rows.append((rows[0], "; ".join(noted), report.outcome))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._rows:
            terminalreporter.section("faults: row, result, evidence")
            for line in self.lines():
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        for row, evidence, outcome in sorted(self._rows, key=lambda found: int(found[0].partition("-")[2])):
            head = f"{row:7} {outcome:7} "
            yield from textwrap.wrap(evidence, _WIDTH, initial_indent=head, subsequent_indent=" " * 16) or [
                head
            ]
