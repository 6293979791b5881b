"""What the client is told: ``meta`` before the answer, ``done`` after it."""

from collections.abc import Sequence

from gateway.answer.evidence import Evidence, RefusalReason
from gateway.answer.generation import Generated
from gateway.context import RequestContext
from gateway.observe.hooks import Stage
from gateway.observe.trace import Trace
from gateway.retrieval.risk import RiskPolicy
from gateway.stream.protocol import (
    AnswerStatus,
    CitedSource,
    Done,
    Meta,
    Searched,
    Source,
    Timings,
    Usage,
)

NO_USAGE = Usage(0, 0, estimated=False)


def meta_of(
    context: RequestContext,
    model: str,
    evidence: Sequence[Evidence],
    risk: RiskPolicy = RiskPolicy.MARK,
    searched_for: str = "",
) -> Meta:
    """``searched_for`` is what was looked for in place of a follow-up, '' for the question itself."""
    return Meta(
        request_id=context.request_id,
        trace_id=context.trace_id,
        knowledge_base=context.scope.knowledge_base,
        knowledge_revision=context.release.kb_revision,
        release_sequence=context.release.sequence,
        embedding_space_id=context.release.space.space_id,
        model=model,
        cached=False,
        sources=tuple(_source(item, risk) for item in evidence),
        searched_for=searched_for or None,
    )


def _source(item: Evidence, risk: RiskPolicy) -> Source:
    chunk = item.chunk
    return Source(
        n=item.n,
        chunk_id=chunk.chunk_id,
        document_id=chunk.document_id,
        document_version=chunk.document_version,
        title=chunk.title,
        section=chunk.section,
        page=chunk.page,
        uri=chunk.source_uri,
        score=item.score,
        raw_score=item.raw_score,
        score_label=item.score_label,
        hit_reason=item.hit_reason,
        risk=risk.shown(item.risk),
    )


def done_of(generated: Generated, citations: tuple[CitedSource, ...], trace: Trace) -> Done:
    """An answer, whole or ended by its length."""
    trace.status = AnswerStatus.ANSWERED.value
    trace.note(unknown_citations=generated.unknown_citations, finish=generated.finish_reason)
    return Done(
        status=AnswerStatus.ANSWERED,
        reasons=(),
        citations=citations,
        usage=generated.usage,
        cacheable=generated.cacheable,
        cached=False,
        timings=timings_of(trace),
    )


def refusal_of(reasons: Sequence[RefusalReason], trace: Trace, usage: Usage = NO_USAGE) -> Done:
    """A refusal is an outcome like any other: no text, no citations, its reasons as codes."""
    trace.status = AnswerStatus.REFUSED_NO_EVIDENCE.value
    trace.reasons = tuple(reason.value for reason in reasons)
    trace.note(reasons=list(trace.reasons))
    return Done(
        status=AnswerStatus.REFUSED_NO_EVIDENCE,
        reasons=trace.reasons,
        citations=(),
        usage=usage,
        cacheable=False,
        cached=False,
        timings=timings_of(trace),
        searched=_searched(trace),
    )


def _searched(trace: Trace) -> Searched | None:
    """Nothing of any document: the caller's own words, and a count of passages that he may see."""
    if trace.context is None or trace.findings is None:
        return None
    found = trace.findings
    return Searched(trace.context.scope.knowledge_base, found.candidates, found.missing)


def timings_of(trace: Trace) -> Timings:
    retrieval = sum(
        trace.stage_ms.get(stage.value, 0.0) for stage in (Stage.EMBED, Stage.RETRIEVE, Stage.RECHECK)
    )
    ttft = trace.first_text_ms
    return Timings(
        retrieval_ms=round(retrieval, 1),
        ttft_ms=None if ttft is None else round(ttft, 1),
        total_ms=round(trace.elapsed_ms, 1),
    )
