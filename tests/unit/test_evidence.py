"""The gate: what is never enough, and which code each refusal carries."""

import math

import pytest

from gateway.adapters.embedded.embedder import CALIBRATION
from gateway.answer.evidence import GateSignals, RefusalReason, decide

BELOW = RefusalReason.BELOW_THRESHOLD
KEYS = RefusalReason.KEY_TERMS_NOT_COVERED


@pytest.mark.parametrize("similarity", [None, 0.0, -1e-9, -0.5, -1.0, math.nan])
def test_orthogonal_and_opposite_vectors_are_never_sufficient(similarity: float | None) -> None:
    """A cosine distance of 1 or more supports nothing, whatever the words say."""
    decision = decide(CALIBRATION, GateSignals(6, 0, similarity, coverage=1.0))
    assert not decision.sufficient
    assert BELOW in decision.reasons


@pytest.mark.parametrize(
    ("signals", "reasons"),
    [
        (GateSignals(0, 0, None, 0.0), (RefusalReason.NO_CANDIDATES,)),
        (GateSignals(0, 2, None, 0.0), (RefusalReason.SOURCES_EXPIRED,)),
        (GateSignals(6, 0, 0.6, 0.9), ()),
        (GateSignals(6, 2, 0.6, 0.9), ()),
        (GateSignals(6, 0, 0.1, 0.3), (BELOW,)),
        (GateSignals(6, 0, 0.9, 0.1), (BELOW, KEYS)),
        (GateSignals(6, 0, 0.6, math.nan), (BELOW, KEYS)),
        (GateSignals(6, 0, 0.9, 1.0, missing_key_terms=1), (KEYS,)),
    ],
)
def test_each_refusal_has_its_reason(signals: GateSignals, reasons: tuple[RefusalReason, ...]) -> None:
    """Codes are stable and come in one order."""
    decision = decide(CALIBRATION, signals)
    assert decision.reasons == reasons
    assert decision.sufficient is (not reasons)


def test_more_similarity_or_coverage_never_hurts() -> None:
    """The score rises with both signals."""
    steps = [i / 20 for i in range(1, 21)]
    scores = [[decide(CALIBRATION, GateSignals(6, 0, s, c)).score for c in steps] for s in steps]
    assert all(row == sorted(row) for row in scores)
    assert all(list(column) == sorted(column) for column in zip(*scores, strict=True))
