"""/v1/apikeys: make a key, list the tenant's, revoke one."""

import time
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from gateway.access.apikey import ApiKey, granted
from gateway.answer.fields import field
from gateway.errors import InvalidField, NotFound
from gateway.web.routes.common import JsonResponse, caller, json_body, query_fields
from gateway.web.routes.releases import record


async def create_key(request: Request) -> Response:
    """201 with the credential, which is shown this once. Groups and scopes are some of the caller's own."""
    services, principal = await caller(request, "operate")
    body = await json_body(request, "name", "groups", "scopes", "ttl_s")
    now = time.time()
    grant = granted(
        principal,
        name=field(body, "name", str) or "",
        groups=_names(body, "groups"),
        scopes=_names(body, "scopes"),
        ttl_s=field(body, "ttl_s", int),
        now=now,
    )
    if services.api_keys is None:
        raise NotFound("API keys are off here: no pepper is set")
    key, credential = services.api_keys.issue(principal, grant, now)
    await services.catalog.add_api_key(key)
    rights = {"groups": sorted(key.groups), "scopes": sorted(key.scopes), "expires_at": key.expires_at}
    await record(services, principal, "apikey.create", key=key.key_id, name=key.name, **rights)
    shown = {"key_id": key.key_id, "api_key": credential, "name": key.name, **rights}
    return JsonResponse(shown, 201)


async def list_keys(request: Request) -> Response:
    services, principal = await caller(request, "operate")
    query_fields(request)
    keys = await services.catalog.api_keys(principal.tenant)
    return JsonResponse({"api_keys": [_key(key) for key in keys]})


async def revoke_key(request: Request) -> Response:
    """200 with the key as it now is; its next request is refused, in every process."""
    services, principal = await caller(request, "operate")
    query_fields(request)
    key = await services.catalog.revoke_api_key(principal.tenant, request.path_params["key_id"])
    services.feed.announce()
    await record(services, principal, "apikey.revoke", key=key.key_id, name=key.name)
    return JsonResponse(_key(key))


def _names(body: Mapping[str, object], name: str) -> list[str]:
    """A list of strings; absent and null are an empty one. Raises InvalidField."""
    names = field(body, name, list) or []
    if not all(isinstance(one, str) for one in names):
        raise InvalidField(f"{name} is a list of strings")
    return names


def _key(key: ApiKey) -> dict[str, object]:
    """What may be shown of a key at any time: everything but its digest."""
    return {
        "key_id": key.key_id,
        "name": key.name,
        "groups": sorted(key.groups),
        "scopes": sorted(key.scopes),
        "created_by": key.created_by,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }
