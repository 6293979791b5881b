"""The offline baseline: golden cases pass, and no figure has dropped beyond noise since it was written down.

After a change that is meant: ``qa-gateway eval --offline --data eval/labelled --sample 12``; its
evaluation.json becomes eval/baseline.json.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.evaluation.comparing import compared, table
from gateway.evaluation.gateways import Target, offline_gateway
from gateway.evaluation.golden import (
    KNOWLEDGE_BASE,
    Case,
    checked,
    fill_golden,
    markdown,
    read_golden,
    result_of,
)
from gateway.evaluation.labelled import read_sets
from gateway.evaluation.measuring import Choice, evaluated

EVAL = Path(__file__).parents[2] / "eval"
GOLDEN = read_golden(EVAL / "golden")


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """One gateway in memory, with the golden corpus in it."""
    with offline_gateway() as gateway:
        fill_golden(gateway, GOLDEN)
        yield gateway


def test_every_golden_case_passes_on_the_offline_baseline(target: Target) -> None:
    """Codes, timeouts, pools, payloads, design questions, categories, breadcrumbs; English and Chinese."""
    found = checked(target, GOLDEN, 7)
    assert found["passed"] == found["cases"] == len(GOLDEN.cases) >= 24, markdown(found)
    assert found["breadcrumb hit rate"] == 1
    kinds = {case.kind for case in GOLDEN.cases}
    assert kinds >= {
        "exact error code",
        "service timeout",
        "database pool",
        "alert payload",
        "abstract design question",
        "category filter",
        "breadcrumb-sensitive",
    }
    for language in ("en", "zh"):
        assert {case.kind for case in GOLDEN.cases if case.id.startswith(language)} == kinds


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Case("x", "k", "What does E_LABEL_409 mean?", document="english/people.md"), "rank"),
        (
            Case("x", "k", "E_LABEL_409", document="english/error-codes.md", section="E_LABEL_404"),
            "breadcrumb",
        ),
        (
            Case(
                "x", "k", "What does E_LABEL_409 mean?", document="english/error-codes.md", contains="banana"
            ),
            "say",
        ),
        (Case("x", "k", "What does E_LABEL_409 mean?", refused=True), "not refused"),
        (
            Case("x", "k", "Who won in 1998?", document="english/people.md", within=99, contains="x"),
            "not answered",
        ),
    ],
    ids=["another document", "another section", "other words", "not refused", "refused"],
)
def test_a_golden_case_can_fail(target: Target, case: Case, why: str) -> None:
    """In each of the ways it is judged by."""
    failed = result_of(target.client(), KNOWLEDGE_BASE, case, GOLDEN.categories).failed
    assert any(why in reason for reason in failed), failed


def test_figures_of_the_small_set_have_not_dropped_beyond_noise(target: Target) -> None:
    """Ranking, gate and answers on our own labelled questions, against what is committed."""
    baseline: dict[str, Any] = json.loads((EVAL / "baseline.json").read_text())
    choice = Choice(seed=baseline["seed"], sample=baseline["sample"], mode_questions=0)
    found = evaluated(target, read_sets(EVAL / "labelled"), choice, lambda _: None)
    differences = compared(baseline, found)
    assert {one.figure for one in differences} >= {"recall@5", "MRR", "false refusals", "false acceptances"}
    assert all(one.paired for one in differences)
    assert not [one for one in differences if one.worse], table(differences)
    assert found["sets"]["depot"]["errors"] == {}
    # the reranker was in force throughout, and says so
    assert found["sets"]["depot"]["searches ranked by"].keys() == {"rerank"}
    assert found["sets"]["depot"]["reranks skipped"] == {}
