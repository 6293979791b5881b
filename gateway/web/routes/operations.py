"""Health, readiness, metrics, running sessions."""

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import NotFound
from gateway.web.routes.common import JsonResponse, caller, query_fields, services_of
from gateway.web.routes.releases import record


async def health(_: Request) -> Response:
    """The process answers; says nothing of its parts."""
    return JsonResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 when every part that is needed answers, else 503; ``details`` says since when and why a part is
    down, ``degraded`` names those without which questions are answered nevertheless.
    """
    services = services_of(request)
    states = await services.readiness.states()
    parts = {name: state.up for name, state in states.items()}
    parts["accepting"] = not services.registry.draining
    details = {
        name: {"since_s": round(state.since_s, 3), "code": state.code}
        for name, state in states.items()
        if not state.up
    }
    degraded = [name for name, state in states.items() if not (state.up or state.needed)]
    good = all(up for name, up in parts.items() if name not in degraded)
    told = {"ready": good, "parts": parts, "details": details, "degraded": degraded}
    return JsonResponse(told, 200 if good else 503)


async def metrics(request: Request) -> Response:
    return Response(
        services_of(request).metrics.exposition(),
        headers={"Cache-Control": "no-store"},
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


async def list_sessions(request: Request) -> Response:
    """What runs for the operator's tenant, and which processes have said so."""
    services, principal = await caller(request, "operate")
    query_fields(request)
    overview = await services.orders.overview(principal)
    return JsonResponse({"sessions": overview.sessions, "processes": overview.processes})


async def kill_session(request: Request) -> Response:
    services, principal = await caller(request, "operate")
    query_fields(request)
    request_id = request.path_params["request_id"]
    if not await services.orders.kill(principal, request_id):
        raise NotFound("no such session is running")
    await record(services, principal, "session.kill", session=request_id)
    return Response(status_code=204)
