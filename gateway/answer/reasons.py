"""What outcomes and reasons mean, in words for whoever asked."""

from collections.abc import Iterator, Mapping

from gateway.answer.evidence import RefusalReason
from gateway.errors import GatewayError
from gateway.stream.protocol import AnswerStatus

_REASONS: Mapping[str, str] = {
    RefusalReason.NO_CANDIDATES: "Nothing that you may see was found for the question.",
    RefusalReason.BELOW_THRESHOLD: "What was found is too far from the question to rest an answer on.",
    RefusalReason.KEY_TERMS_NOT_COVERED: "No passage has what the question turns on: its numbers, codes, "
    "names or conditions.",
    RefusalReason.SOURCES_EXPIRED: "The passages about it are no longer valid.",
    RefusalReason.SOURCES_CONFLICT: "The passages contradict each other.",
    RefusalReason.BUDGET_TOO_SMALL: "The passages don't fit into the answer model's context whole.",
    RefusalReason.MODEL_FOUND_NO_SUPPORT: "The answer model read the passages and found no answer in them.",
}
_OUTCOMES: Mapping[str, str] = {
    AnswerStatus.ANSWERED: "It was answered.",
    AnswerStatus.REFUSED_NO_EVIDENCE: "It was refused, for want of evidence.",
    "sufficient": "The passages are enough to answer from.",
    "weak": "Passages were found that aren't enough to answer from.",
    "none": "No passage was found.",
    "uncalibrated": "Passages were found; no thresholds say whether they are enough to answer from.",
    "client_gone": "Whoever asked left before the end.",
    "slow_reader": "Whoever asked took the answer too slowly.",
    "revoked": "The right to it ended.",
}


def meaning_of_reason(code: str) -> str:
    """Empty for a code that nobody has words for."""
    return _REASONS.get(code, "")


def meaning_of_outcome(code: str) -> str:
    """Of a status, a relevance, the code of an error or why a session was closed."""
    known = _OUTCOMES.get(code)
    if known is not None:
        return known
    title = next((kind.title for kind in _below(GatewayError) if kind.code == code), None)
    return f"{title}." if title is not None else ""


def _below(kind: type[GatewayError]) -> Iterator[type[GatewayError]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)
