"""GET /v1/search and /v1/sources/{chunk_id}: permitted passages without an answer."""

import math
import uuid
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.authorizer import DocumentRef
from gateway.access.principal import Principal
from gateway.answer.evidence import Evidence, GateDecision, decide
from gateway.answer.findings import findings_of
from gateway.answer.question import checked_text
from gateway.answer.search import SearchResult
from gateway.context import RequestContext
from gateway.errors import (
    InvalidField,
    KnowledgeBaseNotFound,
    NotFound,
    PermissionsChanged,
    ReleaseUnresolved,
)
from gateway.observe.trace import Trace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.hints import Hint
from gateway.retrieval.modes import Mode
from gateway.retrieval.risk import RiskPolicy
from gateway.web.routes.common import JsonResponse, caller, query_fields, request_deadline
from gateway.web.services import Services

_MAX_TOP_K = 100
_NAME_MAX_CHARS = 256


async def search(request: Request) -> Response:
    """Search results in the order that an answer would see them in, with scores and reasons."""
    services, principal = await caller(request, "ask")
    fields = query_fields(request, "query", "knowledge_base", "top_k", "mode", "category", "rerank")
    query = checked_text(fields.get("query"), "query", services.settings.question_max_chars)
    top_k = _top_k(fields.get("top_k"), services.settings.top_k)
    mode = _mode(fields.get("mode"))
    category = fields.get("category")
    always = _always_rerank(principal, fields.get("rerank"))
    trace = _trace(services)
    context = await _bound(services, principal, fields.get("knowledge_base"), trace)
    result = await services.search.run(
        context,
        trace,
        query,
        None if category is None else checked_text(category, "category", _NAME_MAX_CHARS),
        mode,
    )
    await services.orchestrator.verify(context, result.refs)
    fitted_only = context.release.config.calibrated and not always
    result = await services.search.rerank(context, trace, result, fitted_only=fitted_only)
    await services.orchestrator.verify(context, result.refs)  # a reranker takes its time
    evidence = result.evidence(services.settings.evidence_passages)
    decision = _judged(context, result, evidence)
    trace.question, trace.findings = query, findings_of(result, evidence, decision, category or "")
    kept = trace.to_keep("search", trace.findings.relevance)
    if kept is not None:
        services.traces.offer(kept)
    risk = _risk_policy(services)
    return JsonResponse(
        {
            "results": [_result(candidate, risk) for candidate in result.candidates[:top_k]],
            "hints": [_hint(hint) for hint in result.hints],
            "mode": result.mode.value,
            "served_by": result.served_by.value,
            "fallback": result.fallback,
            "relevance": trace.findings.relevance,
            "trace_id": trace.trace_id,
            **_gate(principal, decision),
        }
    )


async def source(request: Request) -> Response:
    """One passage, to be shown beside an answer; 404 unless the caller may see it right now."""
    services, principal = await caller(request, "ask")
    fields = query_fields(request, "knowledge_base")
    chunk_id = request.path_params["chunk_id"]
    if fields.get("knowledge_base") is not None:
        names = [fields["knowledge_base"]]
    else:
        permitted = await services.authorizer.permitted(principal)
        names = [scope.knowledge_base for scope in permitted]
    for name in names:
        try:
            context = await _bound(services, principal, name, _trace(services))
        except ReleaseUnresolved:
            continue  # nothing released there yet, so the passage isn't there either
        chunk = await services.search.passage(context, chunk_id)
        if chunk is not None:
            ref = DocumentRef(chunk.document_id, chunk.document_version)
            try:
                await services.orchestrator.verify(context, frozenset({ref}))
            except PermissionsChanged:
                break
            return JsonResponse(_passage(chunk, _risk_policy(services)))
    raise NotFound("there is no such passage")


async def _bound(
    services: Services, principal: Principal, knowledge_base: str | None, trace: Trace
) -> RequestContext:
    if knowledge_base is not None and not knowledge_base.strip():
        raise KnowledgeBaseNotFound()
    return await services.orchestrator.bind(principal, knowledge_base, trace, request_deadline(services))


def _trace(services: Services) -> Trace:
    return Trace(f"req_{uuid.uuid4().hex}", uuid.uuid4().hex, services.metrics)


def _mode(value: str | None) -> Mode | None:
    """None = the gateway's own setting."""
    if value is None:
        return None
    if value not in set(Mode):
        raise InvalidField(f"mode is one of {', '.join(Mode)}")
    return Mode(value)


def _always_rerank(principal: Principal, value: str | None) -> bool:
    """For operators, who fit a reranker's thresholds from it: also where the release has none for it."""
    if value is None:
        return False
    if value != "always":
        raise InvalidField("rerank is always, or is left out")
    principal.require("operate")
    return True


def _top_k(value: str | None, default: int) -> int:
    if value is None:
        return default
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(_MAX_TOP_K))
    if not digits or not 1 <= int(value) <= _MAX_TOP_K:
        raise InvalidField(f"top_k is a number from 1 to {_MAX_TOP_K}")
    return int(value)


def _judged(
    context: RequestContext, result: SearchResult, evidence: Sequence[Evidence]
) -> GateDecision | None:
    """None without evidence, or thresholds for its order. An answer may still be refused where its model
    isn't cleared for the passages' sensitivity.
    """
    if not evidence or context.release.config.gate(result.reranker) is None:
        return None
    return decide(context.release.config, result.signals(evidence))


def _gate(principal: Principal, decision: GateDecision | None) -> dict[str, object]:
    """The gate's own number, 0 at its threshold, for operators alone: thresholds are drawn from it."""
    if decision is None or "operate" not in principal.scopes:
        return {}
    score = decision.score if math.isfinite(decision.score) else None
    return {"gate": {"score": score, "reasons": [reason.value for reason in decision.reasons]}}


def _risk_policy(services: Services) -> RiskPolicy:
    return RiskPolicy(services.settings.risk_policy)


def _hint(hint: Hint) -> dict[str, str]:
    """What the question names and a permitted passage has; it raises passages and leaves none out."""
    return {"kind": hint.kind.value, "value": hint.value, "effect": "boost"}


def _result(candidate: Candidate, risk: RiskPolicy) -> dict[str, object]:
    return {
        **_passage(candidate.chunk, risk),
        "score": candidate.score,
        "raw_score": candidate.raw_score,
        "score_label": candidate.score_label,
        "hit_reason": candidate.hit_reason,
    }


def _passage(chunk: Chunk, risk: RiskPolicy) -> dict[str, object]:
    return {
        "chunk_id": chunk.chunk_id,
        "document_id": chunk.document_id,
        "document_version": chunk.document_version,
        "title": chunk.title,
        "section": chunk.section,
        "page": chunk.page,
        "uri": chunk.source_uri,
        "content": chunk.content,
        "risk": risk.shown(chunk.risk),
    }
