"""Findings of a search, as its trace keeps them and ``/v1/explain`` tells them."""

import math
from collections.abc import Iterable, Sequence

from gateway.access.authorizer import DocumentRef
from gateway.answer.evidence import Evidence, GateDecision
from gateway.answer.outcome import KeptAnswer
from gateway.answer.search import SearchResult
from gateway.answer.signals import ReadPassage
from gateway.observe.tracelog import PREVIEW_CHARS, Findings, TracedCheck, TracedPassage
from gateway.retrieval.missing import missing_words
from gateway.stream.protocol import Source

#: passages that a trace quotes; of a search whose caller wants more, the first ones
_MOST_PASSAGES = 20


def findings_of(
    result: SearchResult, evidence: Sequence[Evidence], decision: GateDecision | None, category: str = ""
) -> Findings:
    """``evidence`` as the gate judged it; ``decision`` None where it has no thresholds."""
    refused = decision is None or not decision.sufficient
    return Findings(
        mode=result.mode.value,
        served_by=result.served_by.value,
        fallback=result.fallback or "",
        category=category,
        candidates=len(result.candidates),
        dropped={reason: count for reason, count in result.dropped.items() if count},
        documents=_in_order(result.refs),
        passages=tuple(_passage(item) for item in evidence[:_MOST_PASSAGES]),
        hints=tuple(hint.value for hint in result.hints),
        reranker=result.reranker,
        rerank_skipped=result.rerank_skipped,
        relevance=relevance_of(evidence, decision),
        score=None if decision is None else _number(decision.score),
        checks=() if decision is None else checks_of(decision),
        missing=_missing(result.question, evidence) if refused else (),
    )


def findings_again(kept: KeptAnswer) -> Findings:
    """Of an answer that is told again: what it rests on. How that was searched for isn't kept with it."""
    opening, searched = kept.opening, kept.ending.searched
    candidates = len(opening.sources) if searched is None else searched.passages
    weak = "weak" if candidates else "none"
    return Findings(
        candidates=candidates,
        documents=_in_order(opening.documents),
        passages=tuple(map(_passage_again, opening.sources[:_MOST_PASSAGES])),
        relevance="sufficient" if opening.sources else weak,
        missing=() if searched is None else searched.missing,
    )


def relevance_of(evidence: Sequence[Evidence], decision: GateDecision | None) -> str:
    """``sufficient`` when the passages pass the gate, ``weak`` below it, ``none`` without any, and
    ``uncalibrated`` where the gate has no thresholds.
    """
    if not evidence:
        return "none"
    if decision is None:
        return "uncalibrated"
    return "sufficient" if decision.sufficient else "weak"


def checks_of(decision: GateDecision) -> tuple[TracedCheck, ...]:
    return tuple(
        TracedCheck(check.name, check.passed, _number(check.value), _number(check.threshold))
        for check in decision.checks
    )


def _missing(question: str, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """By the terms that the gate reads, so that both miss the same."""
    return missing_words(question, [ReadPassage.of(item.chunk).terms for item in evidence])


def _passage(item: Evidence) -> TracedPassage:
    chunk = item.chunk
    return TracedPassage(
        n=item.n,
        chunk_id=chunk.chunk_id,
        document_id=chunk.document_id,
        document_version=chunk.document_version,
        title=chunk.title,
        section=chunk.section,
        page=chunk.page,
        score=item.score,
        raw_score=item.raw_score,
        score_label=item.score_label,
        hit_reason=item.hit_reason,
        preview=" ".join(chunk.content.split())[:PREVIEW_CHARS],
    )


def _passage_again(source: Source) -> TracedPassage:
    return TracedPassage(
        n=source.n,
        chunk_id=source.chunk_id,
        document_id=source.document_id,
        document_version=source.document_version,
        title=source.title,
        section=source.section,
        page=source.page,
        score=source.score,
        raw_score=source.raw_score,
        score_label=source.score_label,
        hit_reason=source.hit_reason,
        preview="",
    )


def _in_order(refs: Iterable[DocumentRef]) -> tuple[DocumentRef, ...]:
    return tuple(sorted(refs, key=lambda ref: (ref.document_id, ref.document_version)))


def _number(value: float | None) -> float | None:
    """What JSON can say."""
    return value if value is not None and math.isfinite(value) else None
