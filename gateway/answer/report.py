"""What the client is told: ``meta`` before the answer, ``done`` after it."""

from collections.abc import Sequence

from gateway.answer.evidence import Evidence
from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.context import RequestContext
from gateway.observe.hooks import Stage
from gateway.observe.trace import Trace
from gateway.retrieval.risk import RiskPolicy
from gateway.stream.protocol import (
    AnswerStatus,
    Done,
    Meta,
    Searched,
    Source,
    Timings,
    Usage,
    UsageWithRewrite,
)

NO_USAGE = Usage(0, 0, estimated=False)


def meta_of(
    context: RequestContext, opening: Opening, searched_for: str = "", *, cached: bool = False
) -> Meta:
    """``searched_for`` is what was looked for in place of a follow-up, '' for the question itself."""
    return Meta(
        request_id=context.request_id,
        trace_id=context.trace_id,
        knowledge_base=context.scope.knowledge_base,
        knowledge_revision=context.release.kb_revision,
        release_sequence=context.release.sequence,
        embedding_space_id=context.release.space.space_id,
        model=opening.model,
        cached=cached,
        sources=opening.sources,
        searched_for=searched_for or None,
    )


def sources_of(evidence: Sequence[Evidence], risk: RiskPolicy) -> tuple[Source, ...]:
    return tuple(_source(item, risk) for item in evidence)


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


def done_of(ending: Ending, trace: Trace, rewrite: Usage | None = None) -> Done:
    """An answer, whole or ended by its length; or a refusal, an outcome like any other: no text, no
    citations, its reasons as codes. ``rewrite`` is what telling the question anew has used.
    """
    return _told(ending, trace, _beside(ending.usage, rewrite), cached=False)


def done_again(kept: KeptAnswer, trace: Trace, rewrite: Usage | None = None) -> Done:
    """Of an answer that was kept: telling it again uses nothing."""
    return _told(kept.ending, trace, _beside(NO_USAGE, rewrite), cached=True)


def _beside(usage: Usage, rewrite: Usage | None) -> Usage:
    if rewrite is None:
        return usage
    return UsageWithRewrite(usage.input_tokens, usage.output_tokens, usage.estimated, rewrite)


def _told(ending: Ending, trace: Trace, usage: Usage, *, cached: bool) -> Done:
    trace.status = ending.status.value
    if ending.reasons:
        trace.reasons = ending.reasons
        trace.note(reasons=list(ending.reasons))
    return Done(
        status=ending.status,
        reasons=ending.reasons,
        citations=ending.citations,
        usage=usage,
        cacheable=ending.status is AnswerStatus.ANSWERED and not ending.unkept,
        cached=cached,
        timings=timings_of(trace),
        searched=ending.searched,
    )


def searched_of(context: RequestContext, trace: Trace) -> Searched | None:
    """Nothing of any document: the caller's own words, and a count of passages that he may see."""
    if trace.findings is None:
        return None
    found = trace.findings
    return Searched(context.scope.knowledge_base, found.candidates, found.missing)


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
