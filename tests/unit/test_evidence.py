"""The gate: what is never enough, and which code each refusal carries."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gateway.adapters.embedded.embedder import CALIBRATION
from gateway.adapters.embedded.weights import bundled_weights
from gateway.answer.evidence import WEIGHED, GateSignals, RefusalReason, decide
from gateway.errors import NotCalibrated
from gateway.release.model import GateFit, RetrievalConfig
from gateway.retrieval.script import SCRIPTS

BELOW = RefusalReason.BELOW_THRESHOLD
KEYS = RefusalReason.KEY_TERMS_NOT_COVERED
GOOD = GateSignals(6, 0, 0.6, 0.9, sentence_coverage=0.8, match=0.5)
NOTHING = GateSignals(0, 0, None, 0.0)


@pytest.mark.parametrize("similarity", [None, 0.0, -1e-9, -0.5, -1.0, math.nan])
@pytest.mark.parametrize("reranker", ["", bundled_weights().version])
def test_orthogonal_and_opposite_vectors_are_never_sufficient(
    similarity: float | None, reranker: str
) -> None:
    """A cosine distance of 1 or more supports nothing, whatever the words say, in whatever order."""
    perfect = GateSignals(6, 0, similarity, 1.0, 0, reranker, sentence_coverage=1.0, match=1.0)
    decision = decide(CALIBRATION, perfect)
    assert not decision.sufficient
    assert BELOW in decision.reasons


@pytest.mark.parametrize(
    ("signals", "reasons"),
    [
        (NOTHING, (RefusalReason.NO_CANDIDATES,)),
        (replace(NOTHING, expired=2), (RefusalReason.SOURCES_EXPIRED,)),
        (GOOD, ()),
        (replace(GOOD, expired=2), ()),
        (GateSignals(6, 0, 0.1, 0.3), (BELOW,)),
        (GateSignals(6, 0, 0.9, 0.1), (BELOW, KEYS)),
        (replace(GOOD, coverage=math.nan), (KEYS,)),
        (replace(GOOD, match=math.nan), (BELOW,)),
        (replace(GOOD, sentence_coverage=math.nan), (BELOW,)),
        (replace(GOOD, missing_key_terms=1), (KEYS,)),
    ],
)
def test_each_refusal_has_its_reason(signals: GateSignals, reasons: tuple[RefusalReason, ...]) -> None:
    """Codes are stable and come in one order."""
    decision = decide(CALIBRATION, signals)
    assert decision.reasons == reasons
    assert decision.sufficient is (not reasons)


@pytest.mark.parametrize("script", ["", *SCRIPTS])
@pytest.mark.parametrize("reranker", ["", bundled_weights().version])
@pytest.mark.parametrize("name", ["top_similarity", "sentence_coverage", "match", "rerank_score"])
def test_more_of_a_signal_never_hurts(name: str, reranker: str, script: str) -> None:
    """The score rises with each of them that is weighed, and falls with none."""
    good = replace(GOOD, reranker=reranker, script=script, rerank_score=20.0)
    changed: list[dict[str, Any]] = [{name: i / 20} for i in range(1, 21)]
    scores = [decide(CALIBRATION, replace(good, **change)).score for change in changed]
    assert scores == sorted(scores)
    gate = CALIBRATION.gate(reranker, script)
    assert gate is not None
    assert (scores[0] < scores[-1]) == bool(dict(gate.weights).get(name))


def test_every_check_is_told_with_its_numbers() -> None:
    """Those that were passed too; a decision says yes exactly when all of them were."""
    decision = decide(CALIBRATION, replace(GOOD, missing_key_terms=2))
    assert [(c.name, c.passed) for c in decision.checks] == [
        ("similarity", True),
        ("score", True),
        ("coverage", True),
        ("key_terms", False),
    ]
    assert decision.checks[1].value == pytest.approx(decision.score)
    assert decide(CALIBRATION, NOTHING).checks == ()


def test_thresholds_of_another_order_or_of_unknown_signals_decide_nothing() -> None:
    """They were never fitted for this: neither yes nor no."""
    with pytest.raises(NotCalibrated):
        decide(CALIBRATION, replace(GOOD, reranker="another-2"))
    newer = RetrievalConfig("v", 1.0, 1.0, 1.0, gates=(GateFit((("vibes", 1.0),), 0.5),))
    with pytest.raises(NotCalibrated):
        decide(newer, GOOD)


def test_each_script_is_judged_by_its_own_thresholds() -> None:
    """One that has none by those for any script; the score is 0 at the threshold in force."""
    any_script = GateFit((("match", 1.0),), 0.6)
    latin = GateFit((("match", 1.0), ("top_similarity", 1.0)), 0.9, script="latin")
    config = RetrievalConfig("v", 1.0, 1.0, 1.0, gates=(any_script, latin))
    assert decide(config, replace(GOOD, script="latin")).score == pytest.approx(0.5 + 0.6 - 0.9)
    for script in ("", "han"):
        assert decide(config, replace(GOOD, script=script)).reasons == (BELOW,)
        assert decide(config, replace(GOOD, script=script, match=0.6)).score == pytest.approx(0.0)


def test_a_reranker_number_that_is_not_there_is_never_enough() -> None:
    """On its scale nobody knows what 0 would say."""
    gate = GateFit((("match", 1.0), ("rerank_score", 1.0)), 0.1, reranker="linear-1")
    config = RetrievalConfig("v", 1.0, 1.0, 1.0, gates=(gate,))
    ranked = replace(GOOD, reranker="linear-1", rerank_score=0.1)
    assert decide(config, ranked).sufficient
    assert decide(config, replace(ranked, rerank_score=None)).reasons == (BELOW,)


def test_a_release_of_before_is_judged_by_its_own_thresholds() -> None:
    """Similarity and coverage alone, as it was fitted."""
    old = RetrievalConfig("v", 3.7, 11.5, 6.6, 0.2)
    assert decide(old, GateSignals(6, 0, 0.6, 0.9)).score == pytest.approx(3.7 * 0.6 + 11.5 * 0.9 - 6.6)


def test_the_bundled_thresholds_weigh_signals_that_there_are() -> None:
    """For the fused order and for the bundled reranker's."""
    assert {gate.reranker for gate in CALIBRATION.gates} == {"", bundled_weights().version}
    assert all(name in WEIGHED for gate in CALIBRATION.gates for name, _ in gate.weights)
    for reranker in ("", bundled_weights().version):
        found = {gate.script for gate in CALIBRATION.gates if gate.reranker == reranker}
        assert found == {"", *SCRIPTS}
