"""GET /v1/search and /v1/sources/{chunk_id}: permitted passages without an answer."""

import uuid

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.authorizer import DocumentRef
from gateway.access.principal import Principal
from gateway.answer.lookup import MAX_TOP_K, Lookup, checked_mode, checked_top_k
from gateway.answer.question import checked_text
from gateway.errors import InvalidField, NotFound, PermissionsChanged, ReleaseUnresolved
from gateway.observe.trace import Trace
from gateway.retrieval.modes import Mode
from gateway.web.routes.common import JsonResponse, caller, query_fields, request_deadline
from gateway.web.services import Services


async def search(request: Request) -> Response:
    """Search results in the order that an answer would see them in, with scores and reasons."""
    services, principal = await caller(request, "ask")
    fields = query_fields(request, "query", "knowledge_base", "top_k", "mode", "category", "rerank")
    wanted = Lookup(
        query=checked_text(fields.get("query"), "query", services.settings.question_max_chars),
        knowledge_base=fields.get("knowledge_base"),
        top_k=_top_k(fields.get("top_k")),
        mode=_mode(fields.get("mode")),
        category=fields.get("category"),
    )
    always = _always_rerank(principal, fields.get("rerank"))
    found = await services.lookup.run(
        principal, wanted, _trace(services), request_deadline(services), always_rerank=always
    )
    return JsonResponse(services.lookup.told(found, principal))


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
            context = await services.lookup.bind(
                principal, name, _trace(services), request_deadline(services)
            )
        except ReleaseUnresolved:
            continue  # nothing released there yet, so the passage isn't there either
        chunk = await services.search.passage(context, chunk_id)
        if chunk is not None:
            ref = DocumentRef(chunk.document_id, chunk.document_version)
            try:
                await services.orchestrator.verify(context, frozenset({ref}))
            except PermissionsChanged:
                break
            return JsonResponse(services.lookup.passage(chunk))
    raise NotFound("there is no such passage")


def _trace(services: Services) -> Trace:
    return Trace(f"req_{uuid.uuid4().hex}", uuid.uuid4().hex, services.metrics)


def _mode(value: str | None) -> Mode | None:
    """None = the gateway's own setting."""
    return None if value is None else checked_mode(value)


def _always_rerank(principal: Principal, value: str | None) -> bool:
    """For operators, who fit a reranker's thresholds from it: also where the release has none for it."""
    if value is None:
        return False
    if value != "always":
        raise InvalidField("rerank is always, or is left out")
    principal.require("operate")
    return True


def _top_k(value: str | None) -> int | None:
    """None = the gateway's own setting; digits alone are a number."""
    if value is None:
        return None
    digits = value.isascii() and value.isdigit() and len(value) <= len(str(MAX_TOP_K))
    return checked_top_k(int(value) if digits else 0)
