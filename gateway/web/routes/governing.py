"""/v1/documents/{id}/acl and /approval: who may see a document, and a person's word on a version of it."""

from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.classes import Acl
from gateway.answer.fields import field
from gateway.answer.question import checked_text
from gateway.errors import InvalidField
from gateway.ingest.governance import AclChange, Approval, ChangedAcl, Decision, Verdict
from gateway.web.routes.common import JsonResponse, caller, json_body

_ENTRY_MAX_CHARS = 300
_NOTE_MAX_CHARS = 1000


async def set_acl(request: Request) -> Response:
    """200: in force for every reader at once. It can't open a version beyond the ACL it was imported with."""
    services, principal = await caller(request, "ingest")
    body = await json_body(request, "allow", "deny")
    allow = _entries(body, "allow")
    if not allow:
        raise InvalidField("allow is missing: name at least one group:NAME, user:NAME or public")
    changed = await services.catalog.set_acl(
        AclChange(
            tenant=principal.tenant,
            document_id=request.path_params["document_id"],
            acl=Acl.parse(allow, _entries(body, "deny")),
            subject=principal.subject,
            deadline_s=services.settings.task_deadline_s,
        )
    )
    services.feed.announce()
    if changed.task_id is not None:
        services.wake_worker()
    return JsonResponse(_acl(changed))


async def judge(request: Request) -> Response:
    """200 with the approval as it stands; the next release follows it."""
    services, principal = await caller(request, "release")
    body = await json_body(request, "document_version", "decision", "note")
    version = field(body, "document_version", int)
    if version is None or not 1 <= version <= 2**31 - 1:
        raise InvalidField("document_version is the number of the version that was looked at")
    decisions = {decision.value: decision for decision in Decision}
    decision = decisions.get(str(body.get("decision")))
    if decision is None:
        raise InvalidField(f"decision is one of {', '.join(decisions)}")
    note = body.get("note")
    approval = await services.catalog.judge(
        Verdict(
            tenant=principal.tenant,
            document_id=request.path_params["document_id"],
            document_version=version,
            decision=decision,
            subject=principal.subject,
            note="" if note is None else checked_text(note, "note", _NOTE_MAX_CHARS),
        )
    )
    return JsonResponse(_approval(approval))


def _entries(body: Mapping[str, object], name: str) -> Sequence[str]:
    """The texts of a list; empty when it is missing or null."""
    given = field(body, name, list) or []
    return tuple(checked_text(entry, name, _ENTRY_MAX_CHARS) for entry in given)


def _acl(changed: ChangedAcl) -> Mapping[str, object]:
    return {
        "document_id": changed.document_id,
        "allow": sorted(changed.acl.allow),
        "deny": sorted(changed.acl.deny),
        "task_id": changed.task_id,
    }


def _approval(approval: Approval) -> Mapping[str, object]:
    return {
        "document_id": approval.document_id,
        "document_version": approval.document_version,
        "approval": approval.approval,
        "approved_by": approval.approved_by,
        "approved_at": approval.approved_at,
        "note": approval.note,
        "risk": approval.risk,
    }
