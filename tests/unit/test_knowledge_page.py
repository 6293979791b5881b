"""The lifecycles drawn in docs/knowledge.md are those of the tables in the code."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.reasons import PASSED_OVER
from gateway.ingest.task import TASK_TRANSITIONS
from gateway.release.model import RELEASE_TRANSITIONS, VERSION_TRANSITIONS

PAGE = (Path(__file__).parents[2] / "docs" / "knowledge.md").read_text()
TABLES: dict[str, Mapping[Any, Iterable[Any]]] = {
    "A document's version": VERSION_TRANSITIONS,
    "A release": RELEASE_TRANSITIONS,
    "A task": TASK_TRANSITIONS,
}


def drawn(title: str) -> set[tuple[str, str]]:
    """The arrows of the diagram under this heading; ``[*]`` is before the first and after the last state."""
    section = PAGE.partition(f"### {title}\n")[2]
    diagram = section.partition("```mermaid\n")[2].partition("```")[0]
    return set(re.findall(r"^ +(\S+) --> (\S+?)(?:: .*)?$", diagram, re.MULTILINE))


@pytest.mark.parametrize("title", TABLES)
def test_a_diagram_has_the_arrows_of_its_table(title: str) -> None:
    """Each, and no other; every state without a way out ends, and PENDING begins."""
    table = TABLES[title]
    arrows = {(before.value, after.value) for before, afters in table.items() for after in afters}
    ends = {(state.value, "[*]") for state, afters in table.items() if not afters}
    assert drawn(title) == arrows | ends | {("[*]", "PENDING")}


def test_every_reason_for_passing_a_file_over_is_told() -> None:
    """In the words of the terminal."""
    assert [words for words in PASSED_OVER.values() if words not in PAGE] == []
