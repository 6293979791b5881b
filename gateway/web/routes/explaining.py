"""POST /v1/explain and DELETE /v1/traces: why it ended like that, what is kept of it, and its end."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.principal import Principal
from gateway.answer.explaining import Explanation, Visible
from gateway.answer.question import Question, checked_text
from gateway.answer.reasons import meaning_of_outcome, meaning_of_reason
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, InvalidField
from gateway.observe.trace import Trace
from gateway.observe.tracelog import Findings
from gateway.stream.channel import EventChannel
from gateway.stream.session import Session
from gateway.web.receiving import field
from gateway.web.routes.common import JsonResponse, caller, json_body, query_fields, request_deadline
from gateway.web.routes.releases import record
from gateway.web.services import Services

_NAME_MAX_CHARS = 256
_WAYS = ("request_id", "trace_id", "question")


@dataclass(frozen=True, slots=True)
class _Asked:
    """One of them is given."""

    request_id: str | None
    trace_id: str | None
    question: Question | None


async def explain(request: Request) -> Response:
    """Of a recorded search or answer; of a question, what would be found for it now, without an answer."""
    services, principal = await caller(request, "ask", "operate")
    asked = _asked(await json_body(request, *_WAYS, "knowledge_base"), services.settings.question_max_chars)
    deadline = request_deadline(services)
    if asked.question is None:
        explanation = await services.explainer.recorded(
            principal, deadline, request_id=asked.request_id, trace_id=asked.trace_id
        )
        if explanation.record.subject != principal.subject:
            await record(services, principal, "trace.read", request=explanation.record.request_id)
    else:
        principal.require("ask")
        explanation = await _tried(services, principal, asked.question, deadline)
    visible = await services.explainer.visible(principal, explanation.record.knowledge_base, deadline)
    return JsonResponse(_told(explanation, visible))


async def erase(request: Request) -> Response:
    """What is kept of the caller's own questions and conversations; for operators, of one person's."""
    services, principal = await caller(request, "ask", "operate")
    subject = query_fields(request, "subject").get("subject")
    if subject is not None and subject != principal.subject:
        principal.require("operate")
        subject = checked_text(subject, "subject", _NAME_MAX_CHARS)
    of = subject or principal.subject
    await services.traces.flush()  # what waits here would come after it
    erased = await services.catalog.erase_traces(principal.tenant, of)
    turns = await services.catalog.erase_turns(principal.tenant, of)
    await record(services, principal, "traces.erase", of=of, erased=erased, turns=turns)
    return JsonResponse({"erased": erased, "turns": turns})


def _asked(body: Mapping[str, object], max_chars: int) -> _Asked:
    given = {name: field(body, name, str) for name in (*_WAYS, "knowledge_base")}
    if sum(given[name] is not None for name in _WAYS) != 1:
        raise InvalidField("give one of request_id, trace_id and question")
    texts = {
        name: checked_text(value, name, max_chars if name == "question" else _NAME_MAX_CHARS)
        for name, value in given.items()
        if value is not None
    }
    if "question" not in texts:
        if "knowledge_base" in texts:
            raise InvalidField("knowledge_base goes with a question")
        return _Asked(texts.get("request_id"), texts.get("trace_id"), None)
    return _Asked(None, None, Question(texts["question"], texts.get("knowledge_base")))


async def _tried(
    services: Services, principal: Principal, question: Question, deadline: Deadline
) -> Explanation:
    """As an answer's session, so that its end by a revocation or a drain ends this too."""
    trace = Trace(f"req_{uuid.uuid4().hex}", uuid.uuid4().hex, services.metrics)
    session = Session(trace.request_id, EventChannel(1, 0, 1))
    session.principal = principal
    with services.registry.registered(session):
        with session.cancel_scope:
            await services.orchestrator.examine(session, trace, principal, question, deadline)
        if session.failure is not None:
            raise session.failure
    outcome = "none" if trace.findings is None else trace.findings.relevance
    kept = trace.to_keep("question", outcome)
    if kept is None:
        raise DeadlineExceeded("total")
    return Explanation(kept, whole=True, inside="operate" in principal.scopes)


def _told(explanation: Explanation, visible: Visible) -> dict[str, object]:
    record, findings = explanation.record, explanation.findings
    told: dict[str, object] = {
        "request_id": record.request_id,
        "trace_id": record.trace_id,
        "kind": record.kind,
        "at": record.at,
        "knowledge_base": record.knowledge_base,
        "release_sequence": record.release_sequence,
        "retrieval_config": record.config,
        "question": record.question,
        "searched_for": record.searched or record.question,
        "outcome": record.outcome,
        "explanation": meaning_of_outcome(record.outcome),
        "reasons": [{"code": code, "explanation": meaning_of_reason(code)} for code in record.reasons],
        "search": _search(findings),
        "found": _found(explanation),
        "passages": [asdict(passage) for passage in findings.passages],
        "timings": record.timings,
        "may_see": {
            "knowledge_bases": visible.knowledge_bases,
            "documents": visible.documents,
            "more": visible.more,
        },
    }
    return told | ({"asked_by": record.subject} if explanation.inside else {})


def _search(findings: Findings) -> dict[str, object]:
    return {
        "mode": findings.mode,
        "served_by": findings.served_by,
        "category": findings.category or None,
        "hints": findings.hints,
        "reranker": findings.reranker or None,
        "rerank_skipped": findings.rerank_skipped or None,
    }


def _found(explanation: Explanation) -> dict[str, object] | None:
    """Numbers over all that was found; None for a reader who may not see all of that any more."""
    if not (explanation.whole or explanation.inside):
        return None
    findings = explanation.findings
    told: dict[str, object] = {
        "passages": findings.candidates,
        "relevance": findings.relevance,
        "score": findings.score,
        "checks": [asdict(check) for check in findings.checks],
        "missing_words": findings.missing,
    }
    return told | ({"dropped": findings.dropped} if explanation.inside else {})
