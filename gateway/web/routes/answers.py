"""POST /v1/answers: one question, one stream; its asker's stop, and his word that he saw the end."""

import time
import uuid
from collections.abc import Mapping

import anyio
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.answer.conversation import conversation_name
from gateway.answer.fields import field
from gateway.answer.question import Question, checked_text
from gateway.answer.reuse.wording import plain_wording
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, GatewayError, InvalidField, NotFound, Rejection, ShuttingDown
from gateway.observe.audit import AuditRecord
from gateway.observe.hooks import Stage
from gateway.observe.logging import get_logger
from gateway.observe.trace import Trace
from gateway.stream.channel import EventChannel
from gateway.stream.session import CANCEL_REASONS, CloseReason, Session
from gateway.web.connection import Connection, connection_of
from gateway.web.problems import ProblemResponse
from gateway.web.receiving import ClientWatch, bearer_token, json_object, require_json
from gateway.web.routes.common import caller, json_body, query_fields, services_of
from gateway.web.services import Services
from gateway.web.sse import stream_session

_FIELDS = ("question", "knowledge_base", "conversation_id", "language", "max_output_tokens")
_LANGUAGES = ("en", "zh")
_NAME_MAX_CHARS = 256
_NO_REUSE = frozenset({"no-store", "no-cache"})
_SETTLE_S = 2.0
_log = get_logger("answers")


class Answers:
    """The endpoint as a bare ASGI app.

    Three tasks: the watch owns ``receive``, the pump owns the path of the question, and this one
    sends. Whatever happens to any of them, the outermost ``finally`` gives everything back.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services: Services = scope["app"].state.services
        settings = services.settings
        request_id = f"req_{uuid.uuid4().hex}"
        trace = Trace(request_id, uuid.uuid4().hex, services.metrics)
        services.metrics.question()
        channel = EventChannel(settings.session_buffer_bytes, settings.coalesce_ms, settings.coalesce_bytes)
        session = Session(request_id, channel)
        connection = connection_of(scope)
        if connection is not None:
            connection.leave_with_eof()
        session.when_ended(lambda: services.ended.remember(session))
        session.when_ended(lambda: _keep_whole(services, session, trace))
        watch = ClientWatch(receive, settings.body_max_bytes, lambda: session.cancel(_goodbye(connection)))
        if services.registry.draining:
            services.metrics.rejection(ShuttingDown.stage)
        with services.registry.registered(session):
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch.run)
                    tasks.start_soon(_pump, services, session, trace, HTTPConnection(scope), watch)
                    await _respond(services, session, scope, watch, send)
                    session.cancel(CloseReason.CLIENT_GONE)  # changes nothing when it has ended
                    tasks.cancel_scope.cancel()
            finally:
                session.release_all()
                _measure_cancel(services, session)
                with anyio.move_on_after(_SETTLE_S, shield=True):
                    await _settle(services, session, trace)


def _goodbye(connection: Connection | None) -> CloseReason:
    too_slow = connection is not None and connection.too_slow
    return CloseReason.SLOW_READER if too_slow else CloseReason.CLIENT_GONE


def _measure_cancel(services: Services, session: Session) -> None:
    """Here the upstream is closed and every place is given back."""
    if session.close_reason in CANCEL_REASONS and session.ended_at is not None:
        services.metrics.cancelled(time.monotonic() - session.ended_at)


async def _respond(
    services: Services, session: Session, scope: Scope, watch: ClientWatch, send: Send
) -> None:
    failure = await session.opening()
    if failure is not None:
        await ProblemResponse(failure, session.request_id)(scope, watch.disconnected, send)
    elif session.opened:
        await stream_session(session, services.settings, scope, watch.disconnected, send)
        if session.revoked_at is not None:
            services.metrics.revocation_stop(time.monotonic() - session.revoked_at)


async def _pump(
    services: Services, session: Session, trace: Trace, request: HTTPConnection, watch: ClientWatch
) -> None:
    """Runs the path inside the session's cancel scope and turns every failure into its end."""
    deadline = Deadline.after(services.settings.total_cap_ms)
    session.cancel_scope.deadline = anyio.current_time() + deadline.remaining()
    with session.cancel_scope:
        try:
            await _path(services, session, trace, request, watch, deadline)
        except GatewayError as error:
            _failed(services, session, trace, error)
        except Exception:  # noqa: BLE001 - the last frame before the client: logged, then told as internal_error
            _log.exception("answer.defect", request_id=session.request_id)
            _failed(services, session, trace, GatewayError())
    if session.close_reason is None:  # nobody ended it, so its scope's own deadline did
        _failed(services, session, trace, DeadlineExceeded("total"))


def _failed(services: Services, session: Session, trace: Trace, error: GatewayError) -> None:
    if session.fail(error):
        trace.note(code=error.code)
        if isinstance(error, Rejection):
            services.metrics.rejection(error.stage)
        else:
            services.metrics.failure(error.code)


async def _path(
    services: Services,
    session: Session,
    trace: Trace,
    request: HTTPConnection,
    watch: ClientWatch,
    deadline: Deadline,
) -> None:
    """Steps 1-3 here, the rest in the orchestrator."""
    with trace.stage(Stage.IDENTIFY):
        principal = await services.verifier.verify(bearer_token(request.headers))
    principal.require("ask")
    await services.rate.admit(principal)
    session.principal = principal
    trace.note(tenant=principal.tenant)
    query_fields(request)
    require_json(request.headers)
    body = json_object(await watch.body(), _FIELDS)
    question = _question(body, services.settings.question_max_chars, no_store=_no_store(request.headers))
    session.hold(await services.sessions.acquire(deadline))  # not before: a body may never come to its end
    if question.conversation_id:
        trace.note(conversation=conversation_name(principal, question.conversation_id))
    await services.orchestrator.answer(session, trace, principal, question, deadline)


def _no_store(headers: Headers) -> bool:
    """Whether its sender wants an answer made for him: as ``no-store`` and ``no-cache`` say it."""
    given = ",".join(headers.getlist("cache-control")).lower()
    return not _NO_REUSE.isdisjoint(part.strip() for part in given.split(","))


def _question(body: Mapping[str, object], max_chars: int, *, no_store: bool) -> Question:
    language = field(body, "language", str)
    if language is not None and language not in _LANGUAGES:
        raise InvalidField(f"language is one of {', '.join(_LANGUAGES)}")
    tokens = field(body, "max_output_tokens", int)
    if tokens is not None and tokens < 1:
        raise InvalidField("max_output_tokens must be at least 1")
    return Question(
        text=plain_wording(checked_text(body.get("question"), "question", max_chars)),
        knowledge_base=_name(body, "knowledge_base"),
        conversation_id=_name(body, "conversation_id"),
        language=language,
        max_output_tokens=tokens,
        no_store=no_store,
    )


def _name(body: Mapping[str, object], name: str) -> str | None:
    """Absent and null mean "not given"; an empty one is a mistake, never a wider search."""
    value = field(body, name, str)
    return None if value is None else checked_text(value, name, _NAME_MAX_CHARS)


async def _settle(services: Services, session: Session, trace: Trace) -> None:
    """Step 16: written down once, whatever the end was; nothing is held any more, so it may take its time."""
    reason = session.close_reason or CloseReason.FAILED  # none: sending it broke, or the process is ending
    status = None if session.status is None else session.status.value
    if trace.first_text_ms is not None:
        services.metrics.first_text(trace.first_text_ms / 1000)
    if status is not None:
        services.metrics.answer(status)
        services.metrics.completion(trace.elapsed_ms / 1000)
    elif reason in CANCEL_REASONS:
        services.metrics.cancel(reason.value)
    trace.note(close_reason=reason.value, status=status)
    _log.info("answer.ended", **trace.record())
    if not _turned_away(session):
        _keep(services, trace, status or str(trace.facts.get("code", reason.value)))
        await _audit(services, session, trace)


def _turned_away(session: Session) -> bool:
    """By admission, before anything was found for it: many may come at once, and counting them is enough."""
    refused = session.close_reason is CloseReason.FAILED and isinstance(session.failure, Rejection)
    return refused and not session.documents


def _keep_whole(services: Services, session: Session, trace: Trace) -> None:
    """In the moment of its end: whoever reads that may ask why."""
    if session.close_reason is CloseReason.COMPLETED:
        _keep(services, trace, trace.status)


def _keep(services: Services, trace: Trace, outcome: str) -> None:
    kept = trace.to_keep("answer", outcome)
    if kept is not None:
        services.traces.offer(kept)


async def _audit(services: Services, session: Session, trace: Trace) -> None:
    principal = session.principal
    if principal is None:
        return
    documents = sorted(f"{r.document_id}@{r.document_version}" for r in session.documents)
    record = AuditRecord(
        at=time.time(),
        tenant=principal.tenant,
        subject=principal.subject,
        action="answer",
        request_id=session.request_id,
        details={**trace.facts, "documents": documents},
    )
    try:
        await services.catalog.append(record)
    except GatewayError as error:
        _log.error("audit.lost", request_id=session.request_id, code=error.code)


async def stop_answer(request: Request) -> Response:
    """204 when the answer was the caller's own and running, else 404."""
    services, principal = await caller(request, "ask")
    query_fields(request)
    if not await services.orders.stop(principal, request.path_params["request_id"]):
        raise NotFound("no such answer is running")
    return Response(status_code=204)


async def acknowledge(request: Request) -> Response:
    """204 when the answer was the caller's own and has ended in this process, once; else 404.

    It belongs to a question that was counted, so it isn't counted once more.
    """
    services = services_of(request)
    principal = await services.verifier.verify(bearer_token(request.headers))
    principal.require("ask")
    await services.authorizer.refuse_revoked(principal)
    await json_body(request)
    seconds = services.ended.acknowledge(principal, request.path_params["request_id"])
    if seconds is None:
        await services.rate.admit(principal)
        raise NotFound("no such answer has ended here")
    services.metrics.acknowledged(seconds)
    return Response(status_code=204)
