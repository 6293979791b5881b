"""Evidence and the gate: no model is asked before this says the evidence is sufficient."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import NotCalibrated
from gateway.release.model import RetrievalConfig
from gateway.retrieval.chunk import Chunk

#: stored vectors are rounded: two at right angles may differ from 0 by this much
_ROUNDING = 1e-6


class RefusalReason(StrEnum):
    """Stable codes of a refusal, as they go out in ``done.reasons``."""

    NO_CANDIDATES = "NO_CANDIDATES"
    BELOW_THRESHOLD = "BELOW_THRESHOLD"
    KEY_TERMS_NOT_COVERED = "KEY_TERMS_NOT_COVERED"
    SOURCES_EXPIRED = "SOURCES_EXPIRED"
    SOURCES_CONFLICT = "SOURCES_CONFLICT"
    BUDGET_TOO_SMALL = "BUDGET_TOO_SMALL"
    MODEL_FOUND_NO_SUPPORT = "MODEL_FOUND_NO_SUPPORT"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage the answer may rest on. ``n`` counts from 1 and is what a citation names.

    ``score`` is the squared L2 distance of unit vectors, 2 - 2 cos, None without a dense hit;
    ``raw_score`` is the number that ranked it, in the scale ``score_label`` names.
    """

    n: int
    chunk: Chunk
    score: float | None
    raw_score: float
    score_label: str
    hit_reason: str


@dataclass(frozen=True, slots=True)
class GateSignals:
    """What the gate looks at. ``top_similarity`` is a cosine (None: no dense hit at all);
    ``coverage`` is the IDF share of the question found in the best single passage;
    ``missing_key_terms`` counts the codes, numbers and names of the question that no passage has.
    """

    candidates: int
    expired: int
    top_similarity: float | None
    coverage: float
    missing_key_terms: int = 0


@dataclass(frozen=True, slots=True)
class GateDecision:
    """``reasons`` is empty exactly when the evidence is sufficient. ``score`` is no probability."""

    reasons: tuple[RefusalReason, ...]
    score: float

    @property
    def sufficient(self) -> bool:
        return not self.reasons


def decide(config: RetrievalConfig, signals: GateSignals) -> GateDecision:
    """The gate: a linear score of similarity and coverage against the release's thresholds.

    A similarity of 0 or less (cosine distance of 1 or more) never supports anything. Raises NotCalibrated
    when the release has no thresholds.
    """
    bias = calibrated_bias(config)
    if signals.candidates == 0:
        gone = RefusalReason.SOURCES_EXPIRED if signals.expired else RefusalReason.NO_CANDIDATES
        return GateDecision((gone,), float("-inf"))
    similarity = signals.top_similarity or 0.0
    score = config.w_similarity * similarity + config.w_coverage * signals.coverage - bias
    reasons: list[RefusalReason] = []
    # Written so that a NaN refuses.
    if not (similarity > _ROUNDING and score >= 0):
        reasons.append(RefusalReason.BELOW_THRESHOLD)
    if signals.missing_key_terms or not signals.coverage >= config.min_coverage:
        reasons.append(RefusalReason.KEY_TERMS_NOT_COVERED)
    return GateDecision(tuple(reasons), score)


def calibrated_bias(config: RetrievalConfig) -> float:
    """The gate's threshold. Raises NotCalibrated: a guess would answer what it should refuse."""
    if config.bias is None:
        raise NotCalibrated("the release was built without a calibration of its embedding space")
    return config.bias
