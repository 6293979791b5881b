"""/v1/tasks: how imports, releases and clean-ups are getting on; cancelling them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.access.principal import Principal
from gateway.answer.question import checked_text
from gateway.errors import IllegalTransition, InvalidField, NotFound
from gateway.ingest.task import CANCELLABLE, TaskKind, TaskQuery, TaskRecord, TaskState
from gateway.web.following import TaskFollower
from gateway.web.paging import limit_of
from gateway.web.routes.common import JsonResponse, caller, query_fields, request_deadline
from gateway.web.services import Services
from gateway.web.sse import stream_frames
from gateway.web.tasks_json import listed_task_json, task_json

Choice = TypeVar("Choice", bound=StrEnum)

_NAME_MAX_CHARS = 256
_READERS = ("ingest", "release", "revoke")
_DEFAULT_LIMIT = 100


async def list_tasks(request: Request) -> Response:
    """Newest first; ``next`` goes on as ``before`` and is null at the end."""
    services, principal = await caller(request, "ingest", "release")
    fields = query_fields(request, "knowledge_base", "state", "kind", "limit", "before")
    query = TaskQuery(
        limit=limit_of(fields.get("limit"), _DEFAULT_LIMIT),
        knowledge_base=_text(fields, "knowledge_base"),
        state=_choice(fields, "state", TaskState),
        kind=_choice(fields, "kind", TaskKind),
        before=_text(fields, "before"),
    )
    tasks = await services.catalog.tasks(principal.tenant, query)
    following = tasks[-1].task_id if len(tasks) == query.limit else None
    return JsonResponse({"tasks": [listed_task_json(task) for task in tasks], "next": following})


async def get_task(request: Request) -> Response:
    services, principal = await caller(request, *_READERS)
    query_fields(request)
    return JsonResponse(task_json(await _readable(services, principal, request.path_params["task_id"])))


async def cancel_task(request: Request) -> Response:
    """202: a waiting one has ended, a running one ends at its next step. 409 for what nobody can call off."""
    services, principal = await caller(request, "ingest", "release")
    query_fields(request)
    task = await _known(services, principal, request.path_params["task_id"])
    principal.require("release" if task.kind is TaskKind.RELEASE else "ingest")
    if task.kind not in CANCELLABLE:
        raise IllegalTransition(f"a {task.kind} task follows from what was decided and can't be cancelled")
    if not await services.catalog.request_cancel(principal.tenant, task.task_id):
        raise NotFound("no such task is waiting or running")
    return Response(status_code=202)


class TaskEvents:
    """The task's progress as a stream, as a bare ASGI app: its place is given back whatever ends it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        services, principal = await caller(request, *_READERS)
        query_fields(request)
        task = await _readable(services, principal, request.path_params["task_id"])
        if scope["method"] == "HEAD":
            head = Response(headers={"Cache-Control": "no-store"}, media_type="text/event-stream")
            await head(scope, receive, send)
            return
        follower = TaskFollower(services, request.headers, principal, task.task_id)
        with (
            services.task_shares.take(principal.tenant),
            await services.task_streams.acquire(request_deadline(services)),
        ):
            await stream_frames(follower.events(), services.settings, scope, receive, send)


async def _known(services: Services, principal: Principal, task_id: str) -> TaskRecord:
    task = await services.catalog.task(principal.tenant, task_id)
    if task is None:
        raise NotFound("there is no such task")
    return task


async def _readable(services: Services, principal: Principal, task_id: str) -> TaskRecord:
    """Who may only revoke finds clean-ups, which a revocation names, and no other task."""
    task = await _known(services, principal, task_id)
    if task.kind is not TaskKind.CLEANUP and principal.scopes.isdisjoint({"ingest", "release"}):
        raise NotFound("there is no such task")
    return task


def _text(fields: Mapping[str, str], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else checked_text(value, name, _NAME_MAX_CHARS)


def _choice(fields: Mapping[str, str], name: str, kind: type[Choice]) -> Choice | None:
    value = fields.get(name)
    if value is None:
        return None
    known = {member.value: member for member in kind}
    if value not in known:
        raise InvalidField(f"{name} is one of {', '.join(known)}")
    return known[value]
