"""The fit of the gate: which thresholds come of which rows, and what of a search the gate sees."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from gateway.answer.evidence import GateSignals
from gateway.answer.reranking import in_order
from gateway.answer.search import SearchResult
from gateway.evaluation.gate_fit import ENOUGH, REFUSALS, calibrate, cross_validated, decisions, rates
from gateway.evaluation.gate_rows import Row
from gateway.evaluation.labelled import ANSWERABLE, OUTSIDE, Question
from gateway.release.model import RetrievalConfig
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from tests.harness.chunks import sample_chunk

STATISTICS = TermStatistics(10, {"upload": 1, "limit": 1})


def rows(language: str, script: str, count: int, worst: float, numbers: bool = False) -> Iterator[Row]:
    """Answerable questions match from ``worst`` on up, those from outside from 0 on."""
    for i in range(count):
        for kind, least in ((ANSWERABLE, worst), (OUTSIDE, 0.0)):
            match = least + 0.5 * i / count
            number = 10 * match if numbers else None
            for order, best in (("", None), ("linear-9", number)):
                signals = GateSignals(
                    6,
                    0,
                    0.5,
                    1.0,
                    0,
                    order,
                    sentence_coverage=match,
                    match=match,
                    rerank_score=best,
                    script=script,
                )
                yield Row(language, kind, True, signals, Question("?", "1", True), (), f"about {i % 20}")


def judged(mine: Sequence[Row], config: RetrievalConfig) -> dict[str, float]:
    return rates(decisions(mine, config))


def test_each_script_with_enough_questions_gets_thresholds_of_its_own() -> None:
    """In every order, and what remains is judged by the strictest."""
    english = [*rows("en", "latin", ENOUGH, worst=0.2)]
    chinese = [*rows("zh", "han", ENOUGH, worst=0.4)]
    config = calibrate([*english, *chinese])
    found = [(gate.reranker, gate.script) for gate in config.gates]
    assert found == [(order, script) for order in ("", "linear-9") for script in ("", "han", "latin")]
    for mine in (english, chinese):
        assert judged(mine, config)["false_refusals"] == pytest.approx(REFUSALS, abs=0.011)
    strangers = [*rows("en", "", ENOUGH, worst=0.2)]
    assert judged(strangers, config)["false_refusals"] > 0.2
    assert judged(strangers, config)["false_accepts"] <= judged(chinese, config)["false_accepts"] + 0.02


@pytest.mark.parametrize("few", [0, ENOUGH - 1])
def test_a_script_with_too_few_questions_shares_the_others_thresholds(few: int) -> None:
    """One gate an order, which keeps refusals low in both."""
    english, chinese = [*rows("en", "latin", ENOUGH, worst=0.2)], [*rows("zh", "han", few, worst=0.4)]
    config = calibrate([*english, *chinese])
    assert [(gate.reranker, gate.script) for gate in config.gates] == [("", ""), ("linear-9", "")]
    assert judged(chinese or english, config)["false_refusals"] <= 0.05


@pytest.mark.parametrize("kind", [ANSWERABLE, OUTSIDE])
def test_a_few_questions_of_a_set_in_another_script_change_nothing_there(kind: str) -> None:
    """An English question that names a thing in Han characters doesn't set the threshold of Chinese."""
    english = [*rows("en", "latin", ENOUGH, worst=0.2)]
    chinese = [*rows("zh", "han", ENOUGH, worst=0.4)]
    strays = [row for row in rows("en", "han", 1, worst=0.0) if row.kind == kind]
    usual, mixed = calibrate([*english, *chinese]), calibrate([*english, *chinese, *strays])
    assert mixed.gate("", "han") == usual.gate("", "han")


def test_the_strictest_threshold_is_that_of_a_script_whatever_files_the_questions_are_in() -> None:
    """Both in one set make the same gate for all other scripts."""
    apart = calibrate([*rows("en", "latin", ENOUGH, worst=0.2), *rows("zh", "han", ENOUGH, worst=0.4)])
    together = calibrate([*rows("a", "latin", ENOUGH, worst=0.2), *rows("a", "han", ENOUGH, worst=0.4)])
    assert together.gate("", "") == apart.gate("", "")


def test_a_rerankers_number_is_weighed_where_it_has_one() -> None:
    """In its own order alone."""
    numbered = calibrate([*rows("en", "latin", ENOUGH, worst=0.2, numbers=True)])
    weighed = {gate.reranker: dict(gate.weights) for gate in numbered.gates}
    assert weighed["linear-9"]["rerank_score"] > 0
    assert "rerank_score" not in weighed[""]
    without = calibrate([*rows("en", "latin", ENOUGH, worst=0.2)])
    assert all("rerank_score" not in dict(gate.weights) for gate in without.gates)


def test_cross_validation_judges_each_article_by_a_fit_on_the_others() -> None:
    """One that is harder than all others is refused by a fit without it, and let in by one that knows it."""
    usual = [*rows("en", "latin", 100, worst=0.3)]
    hard = [replace(row, article="hard") for row in rows("en", "latin", 10, worst=0.0)]
    asked = [row for row in hard if row.kind == ANSWERABLE and row.signals.match < 0.25]
    mine = [*usual, *asked]
    assert judged(mine, calibrate(mine))["false_refusals"] <= REFUSALS + 0.01
    assert cross_validated(mine)["fused"]["en"]["false_refusals"] >= len(asked) / 2 / 105
    assert cross_validated([row for row in usual if row.article == "about 1"]) == {}


def candidate(content: str) -> Candidate:
    chunk = sample_chunk(content, name=content)
    return Candidate(chunk, 0.5, dense=True, raw_score=0.01, score_label="rrf", hit_reason="dense #1")


def test_the_gate_sees_the_best_number_of_what_may_leave() -> None:
    """Not of passages that were left out, and no fused rank as if it were one; and the question's script."""
    found = in_order([candidate("a limit"), candidate("an upload limit")], [3.0, 7.5])
    for kept, best in ((found, 7.5), (found[1:], 3.0), ([candidate("a limit")], None)):
        result = SearchResult("上传 upload", tuple(kept), Counter(), STATISTICS, reranker="linear-9")
        signals = result.signals(result.evidence(6))
        assert (signals.rerank_score, signals.script) == (best, "han")
