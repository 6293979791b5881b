"""Evidence and the gate: no model is asked before this says the evidence is sufficient."""

from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import NotCalibrated
from gateway.release.model import GateFit, RetrievalConfig
from gateway.retrieval.chunk import Chunk

#: the signals that a fit may give a weight
WEIGHED = ("top_similarity", "coverage", "sentence_coverage", "match", "rerank_score")
#: of these the ones that are no share or cosine: a reranker's numbers have a scale of their own
UNBOUNDED = frozenset({"rerank_score"})
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
    ``raw_score`` is the number that ranked it, in the scale ``score_label`` names. ``chunk`` is what was
    found; ``before`` and ``after`` are its neighbours in the same section, joined to it.
    """

    n: int
    chunk: Chunk
    score: float | None
    raw_score: float
    score_label: str
    hit_reason: str
    before: tuple[Chunk, ...] = ()
    after: tuple[Chunk, ...] = ()

    @property
    def parts(self) -> tuple[Chunk, ...]:
        return (*self.before, self.chunk, *self.after)

    @property
    def text(self) -> str:
        """What an answer may rest on, in the document's order."""
        return "\n\n".join(part.content for part in self.parts)

    @property
    def sensitivity(self) -> int:
        return max(part.sensitivity for part in self.parts)

    @property
    def risk(self) -> tuple[str, ...]:
        """The markers of all its parts, each once."""
        return tuple(dict.fromkeys(marker for part in self.parts for marker in part.risk))


@dataclass(frozen=True, slots=True)
class GateSignals:
    """What the gate looks at, over the passages that may become evidence. ``top_similarity`` is a cosine
    (None: no dense hit at all); the coverages and ``match`` are shares of the question's IDF, in [0, 1].

    ``coverage``: found in the best single passage; ``sentence_coverage``: in its best two neighbouring
    sentences; ``match``: as ``coverage``, counted by BM25, so that a mention in a long passage is worth less.
    ``missing_key_terms`` counts the codes, numbers and names of the question that no passage has.
    ``reranker`` is the version that put the passages in order, '' for the fused order; ``rerank_score`` is
    its best number, None in the fused order. ``script`` is the question's, as ``script_of`` names it.
    """

    candidates: int
    expired: int
    top_similarity: float | None
    coverage: float
    missing_key_terms: int = 0
    reranker: str = ""
    sentence_coverage: float = 0.0
    match: float = 0.0
    rerank_score: float | None = None
    script: str = ""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """One thing that the gate asks, by name; None where it is no number against a threshold."""

    name: str
    passed: bool
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class GateDecision:
    """``reasons`` is empty exactly when the evidence is sufficient. ``score`` is no probability; ``checks``
    are for whoever wants to know why.
    """

    reasons: tuple[RefusalReason, ...]
    score: float
    checks: tuple[GateCheck, ...] = ()

    @property
    def sufficient(self) -> bool:
        return not self.reasons


def decide(config: RetrievalConfig, signals: GateSignals) -> GateDecision:
    """The gate: a linear score of the signals against the thresholds that were fitted for this order and the
    question's script.

    A similarity of 0 or less (cosine distance of 1 or more) never supports anything. Raises NotCalibrated
    when the release has no thresholds for it.
    """
    gate = _fitted(config, signals)
    if signals.candidates == 0:
        gone = RefusalReason.SOURCES_EXPIRED if signals.expired else RefusalReason.NO_CANDIDATES
        return GateDecision((gone,), float("-inf"))
    similarity = signals.top_similarity or 0.0
    score = sum(weight * _weighed(signals, name) for name, weight in gate.weights) - gate.bias
    # Written so that a NaN refuses.
    checks = (
        GateCheck("similarity", similarity > _ROUNDING, similarity, _ROUNDING),
        GateCheck("score", score >= 0, score, 0.0),
        GateCheck("coverage", signals.coverage >= gate.min_coverage, signals.coverage, gate.min_coverage),
        GateCheck("key_terms", not signals.missing_key_terms, float(signals.missing_key_terms), 0.0),
    )
    failed = [_REASON_OF[check.name] for check in checks if not check.passed]
    return GateDecision(tuple(dict.fromkeys(failed)), score, checks)


_REASON_OF = {
    "similarity": RefusalReason.BELOW_THRESHOLD,
    "score": RefusalReason.BELOW_THRESHOLD,
    "coverage": RefusalReason.KEY_TERMS_NOT_COVERED,
    "key_terms": RefusalReason.KEY_TERMS_NOT_COVERED,
}


def check_calibrated(config: RetrievalConfig) -> None:
    """Raises NotCalibrated: a guess would answer what it should refuse."""
    if not config.calibrated:
        raise NotCalibrated("the release was built without a calibration of its embedding space")


def _fitted(config: RetrievalConfig, signals: GateSignals) -> GateFit:
    gate = config.gate(signals.reranker, signals.script)
    if gate is None:
        raise NotCalibrated("the release has no thresholds for passages in this order")
    return gate


def _weighed(signals: GateSignals, name: str) -> float:
    """Raises NotCalibrated for a signal of a newer fit: leaving it out would move the threshold. A share that
    there isn't is 0; of a reranker's scale nobody knows what is little, so there nothing is enough.
    """
    if name not in WEIGHED:
        raise NotCalibrated(f"the release weighs {name}, which this version doesn't know")
    value: float | None = getattr(signals, name)
    if value is None:
        return float("-inf") if name in UNBOUNDED else 0.0
    return value
