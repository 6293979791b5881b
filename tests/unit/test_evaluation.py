"""Figures of an evaluation: each is what its definition says, and a drop shows when it is more than noise."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.evaluation import page, report
from gateway.evaluation.asking import contains, rank_of, score_of
from gateway.evaluation.comparing import compared, table
from gateway.evaluation.figures import auc, curve, figures, only_held_out, quantiles
from gateway.evaluation.filling import document_of
from gateway.evaluation.gateways import Target
from gateway.evaluation.golden import read_golden
from gateway.evaluation.labelled import (
    ANSWERABLE,
    NEAR,
    OUTSIDE,
    LabelledDataUnusable,
    Passage,
    read_set,
    read_sets,
)
from gateway.evaluation.measuring import Choice, command_of, sampled, summary
from gateway.evaluation.modes import overlap
from gateway.evaluation.plots import Line, Plot
from gateway.ingest.building import build_document

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"

SMALL: dict[str, Any] = {
    "passages": [{"id": n, "title": title, "text": f"text {n}"} for n, title in enumerate("abcdabcd")],
    "questions": [
        {"question": f"question {n}?", "passage": n % 8, "answerable": n % 3 != 0, "answers": ["a"]}
        for n in range(24)
    ],
}


def columns(**given: list[Any]) -> dict[str, list[Any]]:
    """Rows with the given columns, and nothing remarkable in the others."""
    size = len(next(iter(given.values())))
    plain = {
        "rank": 1,
        "results": 8,
        "score": 1.0,
        "answered": 1,
        "supported": 1.0,
        "gold": None,
        "held_out": 0,
    }
    return {"place": list(range(size)), **{name: [value] * size for name, value in plain.items()}, **given}


def value(raw: dict[str, dict[str, list[Any]]], figure: str) -> float:
    return figures(raw, 7)[figure].value


def file_with(folder: Path, content: object) -> Path:
    path = folder / "set.json"
    path.write_text(json.dumps(content))
    return path


def test_ranking_figures_are_those_of_their_definitions() -> None:
    """Ranks 1, 2, 6 and not found at all."""
    raw = {ANSWERABLE: columns(rank=[1, 2, 6, 0], results=[8, 8, 8, 0])}
    assert value(raw, "recall@1") == 0.25
    assert value(raw, "recall@5") == 0.5
    assert value(raw, "recall@10") == 0.75
    assert value(raw, "MRR") == pytest.approx((1 + 1 / 2 + 1 / 6) / 4, abs=1e-4)
    assert value(raw, "nDCG@10") == pytest.approx((1 + 0.6309 + 0.3562) / 4, abs=1e-4)
    assert value(raw, "zero results") == 0.25


def test_refusals_and_flags_are_counted_where_they_belong() -> None:
    """A near miss is caught when it is refused, or when a citation says that it supports nothing."""
    raw = {
        ANSWERABLE: columns(answered=[1, 1, 1, 0], gold=[1, 0, None, 0], supported=[1.0, 0.5, None, None]),
        NEAR: columns(answered=[1, 1, 0, 1], supported=[1.0, 0.0, None, 1.0]),
        OUTSIDE: columns(answered=[0, 0, 0, 1]),
    }
    found = figures(raw, 7)
    assert found["false refusals"].value == 0.25
    assert found["false acceptances"].value == 0.25
    assert found["near misses refused"].value == 0.25
    assert found["near misses caught"].value == 0.5
    assert (found["answers with the gold string"].value, found["answers with the gold string"].n) == (
        0.3333,
        3,
    )
    assert found["citations supported"].value == 0.75
    assert found["answers flagged"].value == 0.25


def test_held_out_figures_are_of_held_out_articles_alone() -> None:
    """And a kind without any has none."""
    raw = {ANSWERABLE: columns(rank=[1, 0, 0], held_out=[1, 0, 0]), OUTSIDE: columns(answered=[1, 1])}
    found = figures(only_held_out(raw), 7)
    assert (found["recall@1"].value, found["recall@1"].n) == (1.0, 1)
    assert "false acceptances" not in found


def test_the_curve_moves_with_the_threshold_and_what_is_refused_anyhow_stays_refused() -> None:
    """From nobody refused to everybody; a question without a score is refused throughout."""
    accept, reject = columns(score=[1.0, 2.0, 3.0, None]), columns(score=[0.5, 2.5, None, None])
    points = curve(accept, reject, points=5)
    assert points[0] == (0.25, 0.25)
    assert points[-1] == (0.75, 0.0)
    assert all(one[0] <= other[0] and one[1] >= other[1] for one, other in pairwise(points))
    assert auc(accept, reject) == pytest.approx((3 * 0.5 + 2 + 2 + 3 + 3 + 1 + 0) / 16, abs=0.1)
    assert curve(columns(score=[None]), reject) == []
    assert auc(columns(score=[None]), reject) is None


def test_a_failed_request_is_neither_a_refusal_nor_an_answer() -> None:
    """Nothing was measured, so nothing is said."""
    assert figures({OUTSIDE: columns(answered=[1, 1])}, 7).keys() == {"false acceptances"}
    assert quantiles([]) is None


@pytest.mark.parametrize(
    ("text", "answers", "right"),
    [
        ("It was France [1].", ["France"], True),
        ("It was france, in 1066.", ["the France"], True),
        ("It was Francesca.", ["France"], False),
        ("The limit is 42 [1] MB.", ["42 MB"], True),
        ("答案是 光荣 和 ω-force。", ["光荣和ω-force"], True),
        ("答案是光荣。", ["任天堂"], False),
        ("Anything", ["the", ""], False),
    ],
)
def test_an_answer_holds_a_gold_string_word_for_word(text: str, answers: list[str], right: bool) -> None:
    """Without case, punctuation, articles and citation markers; in Chinese without spaces too."""
    assert contains(text, answers) is right


def test_ranks_count_documents_and_not_passages() -> None:
    """Two passages of one document are one place."""
    results = [{"uri": uri} for uri in ("a", "a", "b", "c")]
    assert [rank_of(results, {uri}) for uri in ("a", "b", "c", "d")] == [1, 2, 3, 0]


def test_only_a_score_that_decided_counts_as_one() -> None:
    """What another reason refuses would be refused at any threshold."""
    assert score_of({"gate": {"score": -0.5, "reasons": ["BELOW_THRESHOLD"]}}) == -0.5
    assert score_of({"gate": {"score": 2.0, "reasons": ["KEY_TERMS_NOT_COVERED"]}}) is None
    assert score_of({}) is None


def test_a_set_is_halved_and_held_out_by_articles(tmp_path: Path) -> None:
    """Passages of one title stay together; sampling is seeded and keeps the file's order."""
    labelled = read_set(file_with(tmp_path, SMALL))
    half_of, held_out = labelled.half_of(), labelled.held_out()
    assert [half_of[str(n)] for n in range(8)] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [held_out[str(n)] for n in range(8)] == [False, False, True, True] * 2
    assert len(labelled.of_kind(OUTSIDE)) == 24
    assert len(labelled.of_kind(ANSWERABLE)) + len(labelled.of_kind(NEAR)) == 24
    one = sampled(labelled, ANSWERABLE, Choice(sample=5))
    assert one == sampled(labelled, ANSWERABLE, Choice(sample=5)) == sorted(one, key=lambda pair: pair[0])
    assert one != sampled(labelled, ANSWERABLE, Choice(seed=8, sample=5))
    assert len(sampled(labelled, ANSWERABLE, Choice(sample=500))) == 16


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {"passages": [], "questions": []},
        {**SMALL, "passages": SMALL["passages"][:3]},
        {**SMALL, "passages": SMALL["passages"] * 2},
        {**SMALL, "questions": [{"question": "?"}]},
    ],
    ids=["a list", "empty", "passages missing", "an id twice", "a question without a passage"],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, broken: object) -> None:
    """With the file's name, and before anything is started."""
    with pytest.raises(LabelledDataUnusable, match=r"set\.json"):
        read_set(file_with(tmp_path, broken))


def test_a_folder_without_sets_is_refused(tmp_path: Path) -> None:
    """And so is one without golden cases."""
    with pytest.raises(LabelledDataUnusable):
        read_sets(tmp_path)
    with pytest.raises(LabelledDataUnusable):
        read_golden(tmp_path)


def test_a_passage_is_imported_word_for_word() -> None:
    """Markup in it is text, its title is the document's, and it stays one passage."""
    text = "a <b>bold</b> claim & *stars* # not a heading 1 < 2"
    page_of = document_of(Passage("7", "A & B", text))
    built = build_document(page_of.source, page_of.media_type, page_of.content)
    assert (built.title, [passage.content for passage in built.passages]) == ("A & B", [text])


def evaluation(**raw: dict[str, list[Any]]) -> dict[str, Any]:
    """A report of one set with these columns."""
    return {
        "seed": 7,
        "sets": {"small": {"fingerprint": "f", **summary(raw, 7)}},
    }


def test_a_real_drop_is_told_from_noise() -> None:
    """Of paired questions: one more miss in 200 is noise, twenty are not; refusing less is no drop."""
    before = evaluation(answerable=columns(rank=[1] * 180 + [0] * 20), outside=columns(answered=[0] * 50))
    noise = evaluation(answerable=columns(rank=[1] * 179 + [0] * 21), outside=columns(answered=[0] * 50))
    drop = evaluation(
        answerable=columns(rank=[1] * 160 + [0] * 40), outside=columns(answered=[1] * 25 + [0] * 25)
    )
    assert not any(one.worse or one.better for one in compared(before, noise))
    worse = {one.figure for one in compared(before, drop) if one.worse}
    assert worse >= {"recall@1", "recall@5", "MRR", "false acceptances"}
    assert not any(one.worse for one in compared(drop, before))
    assert {one.figure for one in compared(drop, before) if one.better} == worse
    assert "WORSE" in table(compared(before, drop))


def test_other_questions_are_not_compared_one_by_one() -> None:
    """Different places in the set, or another set of the same name: the noise is that of two samples."""
    before, after = (
        evaluation(answerable=columns(rank=[1, 0] * 50)),
        evaluation(answerable=columns(rank=[1, 0] * 50)),
    )
    assert all(one.paired for one in compared(before, after))
    after["sets"]["small"]["fingerprint"] = "another"
    unpaired = compared(before, after)
    assert not any(one.paired for one in unpaired)
    assert all(one.low < 0 < one.high for one in unpaired if one.figure == "recall@1")


def test_the_overlap_of_modes_counts_common_passages_and_equal_orders() -> None:
    """Questions that neither finds anything for say nothing."""
    assert overlap([["a", "b"], ["c"], []], [["b", "a"], ["c"], []]) == {"common": 1.0, "same order": 0.5}
    assert overlap([["a", "b"]], [["a"]]) == {"common": 0.5, "same order": 0.0}
    assert overlap([[]], [[]]) == {"common": 0.0, "same order": 0.0}


def test_a_plot_is_text_that_stays_the_same() -> None:
    """Names are escaped, and a line outside the axes is cut."""
    line = Line("a < b", [(0.0, 0.0), (0.5, 0.5), (9.0, 0.5), (0.5, 9.0)], [(0.2, 0.3)])
    plot = Plot("t & t", "x", "y", [line])
    svg = plot.svg()
    assert svg == plot.svg()
    assert "a &lt; b" in svg
    assert svg.count("<circle") == 1
    assert svg.count(",") == 2  # two points of the line are inside


def test_the_figures_in_the_docs_are_those_of_the_files() -> None:
    """`qa-gateway eval --write-docs docs` was run, or the page was filled, after the last change of them."""
    text = (DOCS / "retrieval.md").read_text()
    assert page.filled(text, DOCS / "benchmarks") == text


def test_the_columns_in_the_docs_give_the_figures_beside_them() -> None:
    """Nobody has edited the one without the other, and the plots are of the same numbers."""
    for path in (DOCS / "benchmarks").glob("retrieval*.json"):
        found = json.loads(path.read_text())
        for one in found["sets"].values():
            again = summary(one["raw"], found["seed"])
            assert json.loads(json.dumps({key: again[key] for key in ("figures", "held_out", "auc")})) == {
                key: one[key] for key in ("figures", "held_out", "auc")
            }
        for name, svg in report.plots(found).items():
            assert (path.parent / f"{path.stem}-{name}").read_text() == svg


def test_a_section_without_a_file_says_so(tmp_path: Path) -> None:
    """Instead of old figures."""
    found = page.filled("<!-- figures retrieval -->\nold\n<!-- end -->", tmp_path)
    assert found == "<!-- figures retrieval -->\nNot run yet.\n<!-- end -->"


def test_the_command_in_a_report_names_nobodys_folders() -> None:
    """It is what a reader types, with his own."""
    target = Target("temporary", "http://127.0.0.1:1", lambda _: "token")
    command = command_of(target, Choice(sample=5, speed_chunks=100))
    assert command == "qa-gateway eval --data DATA --seed 7 --sample 5 --speed-chunks 100 --callers 4"
    assert "token" not in repr(target)


def test_the_command_fails_on_a_drop_and_on_wrong_usage(tmp_path: Path) -> None:
    """1 = figures dropped beyond noise, 0 = they didn't, 2 = nothing to do."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(evaluation(answerable=columns(rank=[1] * 100))))
    bad.write_text(json.dumps(evaluation(answerable=columns(rank=[1] * 50 + [0] * 50))))
    run = CliRunner().invoke
    assert run(app, ["eval", "--compare", str(good), str(bad)]).exit_code == 1
    assert run(app, ["eval", "--compare", str(bad), str(good)]).exit_code == 0
    assert run(app, ["eval"]).exit_code == 2
    assert run(app, ["eval", "--golden", str(tmp_path), "--url", "http://127.0.0.1:9"]).exit_code == 2
    assert run(app, ["eval", "--golden", str(tmp_path), "--calibrate", str(good)]).exit_code == 2


def test_a_target_says_whether_it_is_reached(tmp_path: Path) -> None:
    """By its own direction; what wasn't measured isn't said to be anything."""
    found = evaluation(
        answerable=columns(rank=[1] * 98 + [0] * 2, answered=[1] * 90 + [0] * 10),
        outside=columns(answered=[0] * 100),
    )
    found["sets"]["squad_en"] = found["sets"].pop("small")
    (tmp_path / "retrieval.json").write_text(json.dumps(found))
    table_of = page.filled("<!-- figures retrieval-targets -->\n<!-- end -->", tmp_path)
    assert "| squad_en | recall@5 | ≥ 0.97 | 0.980, reached |  |" in table_of
    assert "| squad_en | false refusals | ≤ 0.05 | 0.100, MISSED |  |" in table_of
    assert "| squad_en | false acceptances | ≤ 0.10 | 0.000, reached |  |" in table_of
    assert "near misses" not in table_of
    assert "cmrc_zh" not in table_of
