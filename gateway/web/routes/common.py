"""What every route does first: find the services, identify the caller, check the scope."""

from collections.abc import Mapping

import orjson
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from gateway.access.principal import Principal
from gateway.answer.fields import check_fields
from gateway.context import Deadline
from gateway.errors import InvalidField
from gateway.web.receiving import bearer_token, bounded, json_object, require_json
from gateway.web.services import Services


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def caller(request: Request, scope: str, *others: str) -> tuple[Services, Principal]:
    """The verified caller, counted against his rate, with one of the scopes. Raises as the parts do."""
    services = services_of(request)
    principal = await services.verifier.verify(bearer_token(request.headers))
    if principal.scopes.isdisjoint(others):
        principal.require(scope)
    await services.rate.admit(principal)
    await services.authorizer.refuse_revoked(principal)
    return services, principal


async def json_body(request: Request, *allowed: str) -> Mapping[str, object]:
    """The body's fields; there is no query beside it."""
    services = services_of(request)
    query_fields(request)
    require_json(request.headers)
    limited = Request(request.scope, bounded(request.receive, services.settings.body_max_bytes))
    return json_object(await limited.body(), allowed)


def query_fields(request: HTTPConnection, *allowed: str) -> dict[str, str]:
    """Query parameters, each at most once. Raises UnknownField, InvalidField.

    Routes without any call it too: a parameter nobody reads is refused, never passed over.
    """
    pairs = request.query_params.multi_items()
    check_fields([name for name, _ in pairs], allowed)
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise InvalidField("a query parameter is given twice")
    return fields


class JsonResponse(Response):
    media_type = "application/json"

    def __init__(self, content: object, status: int = 200) -> None:
        super().__init__(orjson.dumps(content), status, {"Cache-Control": "no-store"})


def request_deadline(services: Services) -> Deadline:
    return Deadline.after(services.settings.total_cap_ms)
