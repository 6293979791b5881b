"""No port without its contract suite, no suite without every implementation."""

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.contract.suites import IMPLEMENTATIONS, SUITES
from tests.harness.contract_table import place

CONTRACT = Path(__file__).parents[1] / "contract"


def test_the_table_has_no_hole(request: pytest.FixtureRequest) -> None:
    """Every test of a suite that runs over one implementation runs over all of them; over the production
    parts the normal run asks each thing once.
    """
    cells: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for nodeid in nodeids(request.session):
        if (cell := place(nodeid)) is not None:
            suite, implementation = cell
            cells[suite][implementation].add(nodeid.partition("[")[0])
    assert set(cells) == set(SUITES)
    for suite, implementations in cells.items():
        assert set(implementations) == set(IMPLEMENTATIONS), suite
        assert len({frozenset(tests) for tests in implementations.values()}) == 1, suite


def nodeids(session: pytest.Session) -> Iterable[str]:
    """Of every contract test: this run has collected them, or a run of its own does."""
    whole = set(SUITES) <= {item.path.stem for item in session.items}
    if whole and not session.config.option.keyword:
        return [item.nodeid for item in session.items]
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(CONTRACT)],
        capture_output=True,
        text=True,
        check=True,
        cwd=CONTRACT.parents[1],
    )
    return collected.stdout.splitlines()


def test_every_module_of_contracts_is_a_suite() -> None:
    """A new one that isn't in the table would be missed by it."""
    assert {path.stem for path in CONTRACT.glob("test_*.py")} == set(SUITES)
