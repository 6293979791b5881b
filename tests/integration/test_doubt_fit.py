"""The fit of the extractive model's doubt, on a set of its own."""

import json
from pathlib import Path

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.evaluation.doubt_fit import IN_USE, report

TOPICS = ["refund money customer", "rocket oxygen engine", "bread flour oven", "violin string bow"]


def test_the_fit_tells_questions_with_an_answer_from_those_without(tmp_path: Path) -> None:
    """What has none asks with a negation and a number that stand nowhere; the fit weighs both against it."""
    passages = [
        {"id": place, "title": topic.split()[0], "text": f"All about {topic}. " * 3}
        for place, topic in enumerate(TOPICS)
    ]
    questions = [
        {"question": f"What {how} with {topic}?", "passage": place, "answerable": answerable}
        for place, topic in enumerate(TOPICS)
        for how, answerable in (
            ("goes", True),
            ("comes", True),
            ("never goes", False),
            ("costs 97 EUR", False),
        )
    ]
    content = json.dumps({"passages": passages, "questions": questions})
    (tmp_path / "toy.json").write_text(content, encoding="utf-8")
    made = report(tmp_path, BundledEmbedder.load_now())
    weights = made["fitted"]["weights"]
    assert (weights["fit"], weights["opposite"]) == (1.0, 0.0)
    assert weights["negation"] < 0
    assert weights["numbers"] < 0
    assert tuple(made["in_use"]["weights"].values()) == IN_USE.weights
    for held_out in (made["held_out_fitted"]["toy"], made["held_out_in_use"]["toy"]):
        assert held_out["answerable"] == {"refused": 0.0, "flagged": 0.0}
        assert held_out["near"]["refused"] + held_out["near"]["flagged"] == 1.0
    assert all(point["near"] >= point["answerable"] for point in made["curve_fitted"])
