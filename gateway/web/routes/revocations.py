"""/v1/revocations: revoke, list, lift."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from gateway.answer.question import checked_text
from gateway.errors import InvalidField
from gateway.stream.revocation import RevocationKind, RevocationRecord
from gateway.web.paging import Listing, limit_of
from gateway.web.routes.acting import act_of
from gateway.web.routes.common import JsonResponse, caller, json_body, query_fields
from gateway.web.routes.releases import record

_NAME_MAX_CHARS = 256
_REASON_MAX_CHARS = 1000


async def revoke(request: Request) -> Response:
    services, principal = await caller(request, "revoke")
    body = await json_body(request, "kind", "id", "reason")
    kinds = {kind.value: kind for kind in RevocationKind}
    kind = kinds.get(str(body.get("kind")))
    if kind is None:
        raise InvalidField(f"kind is one of {', '.join(kinds)}")
    subject = checked_text(body.get("id"), "id", _NAME_MAX_CHARS)
    reason = checked_text(body.get("reason"), "reason", _REASON_MAX_CHARS)
    act = act_of(request, principal, "revoke", body, kind=kind.value)
    revocation = await services.catalog.revoke(
        principal.tenant, kind, subject, reason, principal.subject, act=act
    )
    services.feed.announce()
    services.wake_worker()
    return JsonResponse(
        {
            "revocation_id": revocation.revocation_id,
            "revocation_epoch": revocation.revocation_epoch,
            "task_id": revocation.task_id,
        },
        201,
    )


async def list_revocations(request: Request) -> Response:
    """Newest first, lifted ones too; ``next_cursor`` goes on as ``cursor`` and is null at the end."""
    services, principal = await caller(request, "revoke")
    fields = query_fields(request, "limit", "cursor")
    listing, limit = Listing("revocations", principal.tenant), limit_of(fields.get("limit"))
    found = await services.catalog.list_revocations(
        principal.tenant, limit=limit + 1, before=listing.place(fields.get("cursor"))
    )
    page = found[:limit]
    return JsonResponse(
        {
            "revocations": [_revocation(one) for one in page],
            "next_cursor": listing.cursor(page[-1].revocation_id) if len(found) > limit else None,
        }
    )


async def lift_revocation(request: Request) -> Response:
    services, principal = await caller(request, "revoke")
    query_fields(request)
    lifted = await services.catalog.lift(principal.tenant, request.path_params["revocation_id"])
    services.wake_worker()  # a document's rows come back
    await record(services, principal, "revocation.lift", revocation=lifted.revocation_id)
    return JsonResponse(_revocation(lifted))


def _revocation(revocation: RevocationRecord) -> Mapping[str, object]:
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
