"""POST /v1/explain and DELETE /v1/traces: why it ended like that, what is kept of it, and its end."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import anyio
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.principal import Principal
from gateway.admission.stage import stage_time
from gateway.answer.explaining import Explanation
from gateway.answer.fields import field
from gateway.answer.question import Question, checked_text
from gateway.answer.reasons import meaning_of_outcome, meaning_of_reason
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, GatewayError, InvalidField, PermissionsChanged, Stopped
from gateway.observe.trace import Trace
from gateway.observe.tracelog import Findings, RewrittenBy, Told, TracedCheck
from gateway.stream.channel import EventChannel
from gateway.stream.session import CloseReason, Session
from gateway.web.connection import connection_of
from gateway.web.receiving import ClientWatch
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
        explanation = await _recorded(services, principal, asked, deadline)
    else:
        principal.require("ask")
        explanation = await _followed(request, services, principal, asked.question, deadline)
    return JsonResponse(_told(explanation))  # without another await: it is what its reader may see now


async def erase(request: Request) -> Response:
    """What is kept of the caller's own questions and conversations; for operators, of one person's."""
    services, principal = await caller(request, "ask", "operate")
    subject = query_fields(request, "subject").get("subject")
    if subject is not None and subject != principal.subject:
        principal.require("operate")
        subject = checked_text(subject, "subject", _NAME_MAX_CHARS)
    of = subject or principal.subject
    with stage_time(request_deadline(services), "catalog", services.settings.total_cap_ms):
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


async def _recorded(
    services: Services, principal: Principal, asked: _Asked, deadline: Deadline
) -> Explanation:
    kept = await services.explainer.recorded(
        principal, deadline, request_id=asked.request_id, trace_id=asked.trace_id
    )
    if kept.subject != principal.subject:
        await record(services, principal, "trace.read", request=kept.request_id)
    return await services.explainer.explain(principal, kept, deadline)


async def _followed(
    request: Request, services: Services, principal: Principal, question: Question, deadline: Deadline
) -> Explanation:
    """As an answer's session: a revocation, a drain, a stop and its client's going end it."""
    session = Session(f"req_{uuid.uuid4().hex}", EventChannel(1, 0, 1))
    session.principal = principal
    session.cancel_scope.deadline = anyio.current_time() + deadline.remaining()
    watch = ClientWatch(request.receive, 0, lambda: session.cancel(CloseReason.CLIENT_GONE))
    connection = connection_of(request.scope)
    if connection is not None:
        connection.leave_with_eof()
    explanation = None
    with services.registry.registered(session):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.run)
            with session.cancel_scope:
                try:
                    explanation = await _tried(services, session, principal, question, deadline)
                except GatewayError as error:
                    session.fail(error)
            tasks.cancel_scope.cancel()
    if session.close_reason is not None:
        raise session.failure or Stopped()
    if explanation is None:
        raise DeadlineExceeded("total")
    return explanation


async def _tried(
    services: Services, session: Session, principal: Principal, question: Question, deadline: Deadline
) -> Explanation:
    trace = Trace(session.request_id, uuid.uuid4().hex, services.metrics)
    with await services.sessions.acquire(deadline):
        await services.orchestrator.examine(session, trace, principal, question, deadline)
        kept = trace.to_keep("question", trace.findings.relevance if trace.findings else "none")
        if kept is None:
            raise DeadlineExceeded("total")
        explanation = await services.explainer.explain(principal, kept, deadline)
    if not explanation.whole:  # its outcome rests on what is out of reach by now
        raise PermissionsChanged()
    return explanation


def _told(explanation: Explanation) -> dict[str, object]:
    record, findings, visible = explanation.record, explanation.findings, explanation.visible
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
        "rewritten_by": (record.rewritten_by or RewrittenBy.RULES.value) if record.searched else None,
        "outcome": record.outcome,
        "cached": record.told == Told.KEPT,
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
    if not explanation.inside:
        return told
    return told | {"asked_by": record.subject, "shared": record.told == Told.SHARED}


def _search(findings: Findings) -> dict[str, object]:
    return {
        "mode": findings.mode,
        "served_by": findings.served_by,
        "fallback": findings.fallback or None,
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
        "checks": [_check(check, inside=explanation.inside) for check in findings.checks],
        "missing_words": findings.missing,
    }
    return told | ({"score": findings.score, "dropped": findings.dropped} if explanation.inside else {})


def _check(check: TracedCheck, *, inside: bool) -> dict[str, object]:
    """Its numbers are for operators: they weigh words by how often documents have them."""
    return asdict(check) if inside else {"name": check.name, "passed": check.passed}
