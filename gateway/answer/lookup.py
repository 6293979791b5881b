"""A lookup: from a caller to the passages that he may see now; the one way for searches and for the tool."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.access.principal import Principal
from gateway.answer.evidence import Evidence, GateDecision, decide
from gateway.answer.findings import findings_of
from gateway.answer.orchestrator import Orchestrator
from gateway.answer.question import checked_text
from gateway.answer.search import PermittedSearch, SearchResult
from gateway.context import Deadline, RequestContext
from gateway.errors import InvalidField, KnowledgeBaseNotFound, NotCalibrated
from gateway.observe.recorder import TraceRecorder
from gateway.observe.trace import Trace
from gateway.observe.tracelog import Findings
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.hints import Hint
from gateway.retrieval.modes import Mode
from gateway.retrieval.risk import RiskPolicy

MAX_TOP_K = 100
NAME_MAX_CHARS = 256


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is wanted. None is the gateway's own setting, or the only knowledge base the caller may ask."""

    query: str
    knowledge_base: str | None = None
    top_k: int | None = None
    mode: Mode | None = None
    category: str | None = None


@dataclass(frozen=True, slots=True)
class LookupResult:
    """``shown`` are the first candidates, as many as were wanted, in the order that an answer would see.

    ``decision`` is None without evidence, or thresholds for its order. An answer may still be refused where
    its model isn't cleared for the passages' sensitivity.
    """

    search: SearchResult
    shown: tuple[Candidate, ...]
    decision: GateDecision | None
    relevance: str
    trace_id: str


class KnowledgeLookup:
    """Keeps nothing between two lookups: each one is authorized, bound, re-checked and verified anew."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        search: PermittedSearch,
        traces: TraceRecorder,
        *,
        risk: RiskPolicy,
        passages: int,
        top_k: int,
    ) -> None:
        """``passages`` is how many the gate judges; ``top_k`` how many are shown to whoever says nothing."""
        self._orchestrator = orchestrator
        self._search = search
        self.judging = search.judging
        self._traces = traces
        self._risk = risk
        self._passages = passages
        self._top_k = top_k

    async def bind(
        self, principal: Principal, knowledge_base: str | None, trace: Trace, deadline: Deadline
    ) -> RequestContext:
        """As ``Orchestrator.bind``; a blank name is the name of nothing."""
        if knowledge_base is not None and not knowledge_base.strip():
            raise KnowledgeBaseNotFound()
        return await self._orchestrator.bind(principal, knowledge_base, trace, deadline)

    async def run(
        self,
        principal: Principal,
        wanted: Lookup,
        trace: Trace,
        deadline: Deadline,
        *,
        model_sensitivity: int | None = None,
        always_rerank: bool = False,
    ) -> LookupResult:
        """``model_sensitivity`` is what the model that reads the result is cleared for, None when a person
        does. ``always_rerank``: also where the release has no thresholds for the reranker.

        Raises what ``Orchestrator.bind`` and ``verify`` and ``PermittedSearch.run`` raise; InvalidField.
        """
        context = await self.bind(principal, wanted.knowledge_base, trace, deadline)
        category = wanted.category
        if category is not None:
            category = checked_text(category, "category", NAME_MAX_CHARS)
        result = await self._search.run(context, trace, wanted.query, category, wanted.mode)
        found = result.refs
        await self._orchestrator.verify(context, found)
        if model_sensitivity is not None:
            result = result.readable(trace, self._risk, model_sensitivity)
        fitted_only = context.release.config.calibrated and not always_rerank
        result = await self._search.rerank(context, trace, result, fitted_only=fitted_only)
        judged = await self.judging.run(context.deadline, lambda: self._judged(context, wanted, result))
        await self._orchestrator.verify(context, found)  # all that takes its time; from here on nothing waits
        return self._noted(wanted, trace, result, *judged)

    def _judged(
        self, context: RequestContext, wanted: Lookup, result: SearchResult
    ) -> tuple[GateDecision | None, Findings]:
        """What the gate says of it."""
        evidence = result.evidence(self._passages)
        decision = _decision(context, result, evidence)
        return decision, findings_of(result, evidence, decision, wanted.category or "")

    def _noted(
        self,
        wanted: Lookup,
        trace: Trace,
        result: SearchResult,
        decision: GateDecision | None,
        findings: Findings,
    ) -> LookupResult:
        """Written down for ``/v1/explain``."""
        trace.question, trace.findings = wanted.query, findings
        kept = trace.to_keep("search", findings.relevance)
        if kept is not None:
            self._traces.offer(kept)
        shown = result.candidates[: wanted.top_k or self._top_k]
        return LookupResult(result, shown, decision, findings.relevance, trace.trace_id)

    def told(self, found: LookupResult, principal: Principal) -> dict[str, object]:
        """The body of ``GET /v1/search``."""
        search = found.search
        return {
            "results": [self._candidate(candidate) for candidate in found.shown],
            "hints": [_hint(hint) for hint in search.hints],
            "mode": search.mode.value,
            "served_by": search.served_by.value,
            "fallback": search.fallback,
            "relevance": found.relevance,
            "trace_id": found.trace_id,
            **_gate(principal, found.decision),
        }

    def passage(self, chunk: Chunk) -> dict[str, object]:
        """What is told of a passage, whoever asked for it how."""
        return {
            "chunk_id": chunk.chunk_id,
            "document_id": chunk.document_id,
            "document_version": chunk.document_version,
            "title": chunk.title,
            "section": chunk.section,
            "page": chunk.page,
            "uri": chunk.source_uri,
            "content": chunk.content,
            "risk": self._risk.shown(chunk.risk),
        }

    def _candidate(self, candidate: Candidate) -> dict[str, object]:
        return {
            **self.passage(candidate.chunk),
            "score": candidate.score,
            "raw_score": candidate.raw_score,
            "score_label": candidate.score_label,
            "hit_reason": candidate.hit_reason,
        }


def checked_top_k(value: int) -> int:
    """Raises InvalidField."""
    if not 1 <= value <= MAX_TOP_K:
        raise InvalidField(f"top_k is a number from 1 to {MAX_TOP_K}")
    return value


def checked_mode(value: str) -> Mode:
    """Raises InvalidField."""
    if value not in set(Mode):
        raise InvalidField(f"mode is one of {', '.join(Mode)}")
    return Mode(value)


def _decision(
    context: RequestContext, result: SearchResult, evidence: Sequence[Evidence]
) -> GateDecision | None:
    if not evidence:
        return None
    try:
        return decide(context.release.config, result.signals(evidence))
    except NotCalibrated:  # nothing is answered from it, but searched it can be
        return None


def _gate(principal: Principal, decision: GateDecision | None) -> dict[str, object]:
    """The gate's own number, 0 at its threshold, for operators alone: thresholds are drawn from it."""
    if decision is None or "operate" not in principal.scopes:
        return {}
    score = decision.score if math.isfinite(decision.score) else None
    return {"gate": {"score": score, "reasons": [reason.value for reason in decision.reasons]}}


def _hint(hint: Hint) -> dict[str, str]:
    """What the question names and a permitted passage has; it raises passages and leaves none out."""
    return {"kind": hint.kind.value, "value": hint.value, "effect": "boost"}
