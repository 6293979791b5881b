"""/v1/releases: build, compare, activate, roll back."""

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.principal import Principal
from gateway.answer.fields import field
from gateway.answer.question import checked_text
from gateway.errors import InvalidField
from gateway.ingest.plan import Activation
from gateway.observe.audit import AuditRecord
from gateway.release.diff import NamedDocument, ReleaseDiff
from gateway.release.model import KnowledgeBaseRecord, ReleaseRecord
from gateway.web.paging import Listing, limit_of
from gateway.web.routes.acting import act_of
from gateway.web.routes.common import JsonResponse, caller, json_body, query_fields
from gateway.web.services import Services

_NAME_MAX_CHARS = 256


async def list_releases(request: Request) -> Response:
    """Newest first; ``next_cursor`` goes on as ``cursor`` and is null at the end."""
    services, principal = await caller(request, "release")
    fields = query_fields(request, "knowledge_base", "limit", "cursor")
    name = checked_text(fields.get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS)
    listing, limit = Listing("releases", principal.tenant, name), limit_of(fields.get("limit"))
    found = await services.catalog.releases(
        principal.tenant, name, limit=limit + 1, before=listing.place(fields.get("cursor"))
    )
    page = found[:limit]
    return JsonResponse(
        {
            "releases": [_release(release) for release in page],
            "next_cursor": listing.cursor(page[-1].release_id) if len(found) > limit else None,
        }
    )


async def build_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    body = await json_body(request, "knowledge_base")
    name = checked_text(body.get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS)
    accepted = await services.catalog.accept_release(
        principal.tenant,
        name,
        services.settings.task_deadline_s,
        act=act_of(request, principal, "release.build", body, knowledge_base=name),
    )
    services.wake_worker()
    return JsonResponse({"task_id": accepted.task_id, "release_id": accepted.release_id}, 202)


async def activate_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    body = await json_body(request, "expected_sequence")
    release_id = request.path_params["release_id"]
    activation = await services.catalog.activate(
        principal.tenant,
        release_id,
        field(body, "expected_sequence", int),
        act=act_of(request, principal, "release.activate", body, release=release_id),
    )
    return JsonResponse(_activation(activation))


async def roll_back_release(request: Request) -> Response:
    """The revision and all that it says, or the retrieval config or the model adapter alone."""
    services, principal = await caller(request, "release")
    body = await json_body(request, "knowledge_base", "what", "expected_sequence")
    name = checked_text(body.get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS)
    catalog, configured = services.catalog, services.settings.model_adapters
    ways: Mapping[str, Callable[..., Awaitable[Activation]]] = {
        "release": catalog.roll_back,
        "config": catalog.roll_back_config,
        "model": partial(catalog.roll_back_model, configured=configured),
    }
    what = field(body, "what", str) or "release"
    if what not in ways:
        raise InvalidField(f"what is one of {', '.join(ways)}")
    activation = await ways[what](
        principal.tenant,
        name,
        field(body, "expected_sequence", int),
        act=act_of(request, principal, "release.roll_back", body, knowledge_base=name, what=what),
    )
    return JsonResponse(_activation(activation))


async def diff_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    given = query_fields(request, "against").get("against")
    against = None if given is None else checked_text(given, "against", _NAME_MAX_CHARS)
    diff = await services.catalog.diff_releases(principal.tenant, request.path_params["release_id"], against)
    return JsonResponse(_diff(diff))


async def list_knowledge_bases(request: Request) -> Response:
    services, principal = await caller(request, "release")
    query_fields(request)
    found = await services.catalog.knowledge_bases(principal.tenant)
    return JsonResponse({"knowledge_bases": [_knowledge_base(one) for one in found]})


async def record(services: Services, principal: Principal, action: str, **details: object) -> None:
    """An administrative act in the audit trail; raises CatalogUnavailable when it can't be kept."""
    await services.catalog.append(
        AuditRecord(time.time(), principal.tenant, principal.subject, action, "", details)
    )


def _activation(activation: Activation) -> dict[str, object]:
    return {
        "knowledge_base": activation.knowledge_base,
        "knowledge_revision": activation.knowledge_revision,
        "release_sequence": activation.release_sequence,
    }


def _knowledge_base(record: KnowledgeBaseRecord) -> dict[str, object]:
    return {
        "knowledge_base": record.name,
        "release_id": record.release_id,
        "release_sequence": record.sequence,
        "embedding_space_id": record.space_id,
    }


def _diff(diff: ReleaseDiff) -> dict[str, object]:
    kinds = {"added": diff.added, "changed": diff.changed, "removed": diff.removed, "moved": diff.moved}
    chunks, vectors = diff.chunks, diff.vectors or {}
    return {
        "from": None if diff.against is None else diff.against.release_id,
        "to": diff.release.release_id,
        "documents": {
            **{kind: [_document(one) for one in documents.named] for kind, documents in kinds.items()},
            "counts": {kind: documents.count for kind, documents in kinds.items()},
        },
        "chunks": {
            "from": chunks.before,
            "to": chunks.after,
            "added": chunks.added,
            "removed": chunks.removed,
            "unchanged": chunks.unchanged,
        },
        "vectors": {"reused": vectors.get("reused"), "embedded": vectors.get("embedded")},
    }


def _document(document: NamedDocument) -> dict[str, object]:
    return {
        "document_id": document.document_id,
        "document_version": document.document_version,
        "source": document.source,
        "title": document.title,
    }


def _release(release: ReleaseRecord) -> dict[str, object]:
    return {
        "release_id": release.release_id,
        "knowledge_base": release.knowledge_base,
        "knowledge_revision": release.kb_revision,
        "state": release.state.value,
        "release_sequence": release.sequence,
        "embedding_space_id": release.space_id,
        "retrieval_config": release.config.version,
        "calibrated": release.config.calibrated,
        "model_adapter": release.model or None,
        "documents": release.documents,
        "chunks": release.chunks,
        "created_at": release.created_at,
        "activated_at": release.activated_at,
        "error": release.error,
        "barrier": release.barrier,
    }
