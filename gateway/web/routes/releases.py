"""/v1/releases: build, activate, roll back. /v1/revocations: revoke, list, lift."""

import time

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.principal import Principal
from gateway.answer.question import checked_text
from gateway.errors import InvalidField
from gateway.ingest.plan import Activation
from gateway.observe.audit import AuditRecord
from gateway.release.model import ReleaseRecord
from gateway.stream.revocation import RevocationKind, RevocationRecord
from gateway.web.receiving import field
from gateway.web.routes.common import JsonResponse, caller, json_body, query_fields
from gateway.web.services import Services

_NAME_MAX_CHARS = 256
_REASON_MAX_CHARS = 1000


async def list_releases(request: Request) -> Response:
    services, principal = await caller(request, "release")
    name = checked_text(
        query_fields(request, "knowledge_base").get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS
    )
    releases = await services.catalog.releases(principal.tenant, name)
    return JsonResponse({"releases": [_release(release) for release in releases]})


async def build_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    body = await json_body(request, "knowledge_base")
    name = checked_text(body.get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS)
    accepted = await services.catalog.accept_release(
        principal.tenant, name, services.settings.task_deadline_s
    )
    services.wake_worker()
    await record(services, principal, "release.build", knowledge_base=name, task=accepted.task_id)
    return JsonResponse({"task_id": accepted.task_id, "release_id": accepted.release_id}, 202)


async def activate_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    body = await json_body(request, "expected_sequence")
    release_id = request.path_params["release_id"]
    activation = await services.catalog.activate(
        principal.tenant, release_id, field(body, "expected_sequence", int)
    )
    await record(services, principal, "release.activate", release=release_id)
    return JsonResponse(_activation(activation))


async def roll_back_release(request: Request) -> Response:
    services, principal = await caller(request, "release")
    body = await json_body(request, "knowledge_base", "expected_sequence")
    name = checked_text(body.get("knowledge_base"), "knowledge_base", _NAME_MAX_CHARS)
    activation = await services.catalog.roll_back(
        principal.tenant, name, field(body, "expected_sequence", int)
    )
    await record(services, principal, "release.roll_back", knowledge_base=name)
    return JsonResponse(_activation(activation))


async def revoke(request: Request) -> Response:
    services, principal = await caller(request, "revoke")
    body = await json_body(request, "kind", "id", "reason")
    kinds = {kind.value: kind for kind in RevocationKind}
    kind = kinds.get(str(body.get("kind")))
    if kind is None:
        raise InvalidField(f"kind is one of {', '.join(kinds)}")
    subject = checked_text(body.get("id"), "id", _NAME_MAX_CHARS)
    reason = checked_text(body.get("reason"), "reason", _REASON_MAX_CHARS)
    revocation = await services.catalog.revoke(principal.tenant, kind, subject, reason, principal.subject)
    services.feed.announce()
    await record(services, principal, "revoke", revocation=revocation.revocation_id, kind=kind.value)
    return JsonResponse(
        {
            "revocation_id": revocation.revocation_id,
            "revocation_epoch": revocation.revocation_epoch,
        },
        201,
    )


async def list_revocations(request: Request) -> Response:
    services, principal = await caller(request, "revoke")
    query_fields(request)
    revocations = await services.catalog.list_revocations(principal.tenant)
    return JsonResponse({"revocations": [_revocation(r) for r in revocations]})


async def lift_revocation(request: Request) -> Response:
    services, principal = await caller(request, "revoke")
    query_fields(request)
    lifted = await services.catalog.lift(principal.tenant, request.path_params["revocation_id"])
    await record(services, principal, "revocation.lift", revocation=lifted.revocation_id)
    return JsonResponse(_revocation(lifted))


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


def _release(release: ReleaseRecord) -> dict[str, object]:
    return {
        "release_id": release.release_id,
        "knowledge_base": release.knowledge_base,
        "knowledge_revision": release.kb_revision,
        "state": release.state.value,
        "release_sequence": release.sequence,
        "embedding_space_id": release.space_id,
        "documents": release.documents,
        "chunks": release.chunks,
        "created_at": release.created_at,
        "activated_at": release.activated_at,
        "error": release.error,
    }


def _revocation(revocation: RevocationRecord) -> dict[str, object]:
    return {
        "revocation_id": revocation.revocation_id,
        "kind": revocation.kind.value,
        "id": revocation.subject,
        "reason": revocation.reason,
        "revoked_by": revocation.revoked_by,
        "revocation_epoch": revocation.revocation_epoch,
        "created_at": revocation.created_at,
        "lifted_at": revocation.lifted_at,
    }
