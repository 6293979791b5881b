"""No port without its contract suite, no suite without every implementation."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.contract.suites import IMPLEMENTATIONS, SUITES
from tests.harness.contract_table import place

CONTRACT = Path(__file__).parents[1] / "contract"


def test_the_table_has_no_hole() -> None:
    """Every test of a suite that runs over one implementation runs over all of them."""
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", str(CONTRACT)],
        capture_output=True,
        text=True,
        check=True,
        cwd=CONTRACT.parents[1],
    )
    cells: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for nodeid in collected.stdout.splitlines():
        if (cell := place(nodeid)) is not None:
            suite, implementation = cell
            cells[suite][implementation].add(nodeid.replace(implementation, "*"))
    assert set(cells) == set(SUITES)
    for suite, implementations in cells.items():
        assert set(implementations) == set(IMPLEMENTATIONS), suite
        assert len({frozenset(tests) for tests in implementations.values()}) == 1, suite


def test_every_module_of_contracts_is_a_suite() -> None:
    """A new one that isn't in the table would be missed by it."""
    assert {path.stem for path in CONTRACT.glob("test_*.py")} == set(SUITES)
