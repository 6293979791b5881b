"""The run of repeated questions: what is asked, and when its figures count."""

from typing import Any

import pytest

from gateway.answer.reuse.relative_time import about_now
from loadtest.repeated_plan import DOCUMENTS, Mix, plan
from loadtest.repeated_report import checks

MIX = Mix(rate=10, seconds=60, seed=7)


def test_four_of_five_questions_were_asked_before() -> None:
    """As the mix says; the plan is the same for the same seed; a tenth of the new ones nobody can answer."""
    arrivals = plan(MIX)
    distinct = {arrival.question for arrival in arrivals}
    unanswerable = {question for question in distinct if "championship" in question}
    assert arrivals == plan(MIX)
    assert len(distinct) / len(arrivals) == pytest.approx(0.2, abs=0.03)
    assert len(unanswerable) / len(distinct) == pytest.approx(0.1, abs=0.05)
    assert all(arrival.manner.reuses for arrival in arrivals)


def test_every_question_may_be_told_again_and_is_about_a_document() -> None:
    """None is about a time that moves on."""
    for question in {arrival.question for arrival in plan(MIX)}:
        assert not about_now(question)
        if "championship" not in question:
            (thing,) = (name.removesuffix(".md") for name in DOCUMENTS if f" {name[:-3]} " in question)
            (office,) = (
                word for word in question.split() if word.istitle() and word in DOCUMENTS[f"{thing}.md"]
            )
            assert f"## The {office} office" in DOCUMENTS[f"{thing}.md"]


def test_a_run_that_is_too_long_for_the_questions_there_are_is_refused() -> None:
    """Rather than asking old ones as if they were new."""
    with pytest.raises(ValueError, match="too few questions"):
        plan(Mix(rate=100, seconds=60, seed=7))


def figures(**changes: Any) -> dict[str, Any]:
    """Of a run in which everything fits."""
    found: dict[str, Any] = {
        "capacity": {
            "generation_starts_per_s": {"predicted": 1.0, "measured": 1.0},
            "measured": {"questions": 100, "hits": 50, "generation_starts": 20},
        },
        "clients": {"asked": 100, "cached": 50},
        "model_calls": 20,
        "driver": {"valid": True},
    }
    return found | changes


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({}, []),
        ({"model_calls": 21}, [3]),
        ({"clients": {"asked": 101, "cached": 49}}, [1, 2]),
        ({"driver": {"valid": False}}, [4]),
    ],
)
def test_a_run_counts_when_three_sides_have_counted_the_same(
    changes: dict[str, Any], missed: list[int]
) -> None:
    """Gateway, clients, model; and the driver was in time."""
    assert [number for number, one in enumerate(checks(figures(**changes))) if not one["met"]] == missed


@pytest.mark.parametrize(("predicted", "met"), [(1.019, True), (0.981, True), (1.021, False), (0.979, False)])
def test_generation_starts_may_be_off_by_two_percent(predicted: float, met: bool) -> None:
    """Either way; a run without any shows nothing."""
    found = figures()
    found["capacity"]["generation_starts_per_s"]["predicted"] = predicted
    assert checks(found)[0]["met"] is met
    found["capacity"]["generation_starts_per_s"]["measured"] = 0.0
    assert not checks(found)[0]["met"]
