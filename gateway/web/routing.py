"""The table of paths: for each one its methods, so that a 405 names all of them."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route, request_response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.web.routes import (
    answers,
    apikeys,
    documents,
    explaining,
    governing,
    knowledge,
    operations,
    releases,
    revocations,
    tasks,
)

Endpoint = Callable[[Request], Awaitable[Response]]

_STATIC = Path(__file__).parent / "static"


async def chat_page(_: Request) -> Response:
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


class Methods:
    """What one path answers to. HEAD comes with GET; OPTIONS says which methods there are, and no more."""

    def __init__(
        self,
        *,
        get: ASGIApp | None = None,
        post: ASGIApp | None = None,
        put: ASGIApp | None = None,
        delete: ASGIApp | None = None,
    ) -> None:
        given = {"GET": get, "HEAD": get, "POST": post, "PUT": put, "DELETE": delete}
        self._apps = {method: app for method, app in given.items() if app is not None}
        self._allow = ", ".join([*self._apps, "OPTIONS"])

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self._apps, "OPTIONS"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._apps.get(scope["method"])
        if app is not None:
            await app(scope, receive, send)
        elif scope["method"] == "OPTIONS":
            await Response(status_code=204, headers={"Allow": self._allow})(scope, receive, send)
        else:
            raise HTTPException(405, headers={"Allow": self._allow})


def _path(
    path: str,
    *,
    get: Endpoint | None = None,
    post: Endpoint | None = None,
    put: Endpoint | None = None,
    delete: Endpoint | None = None,
) -> Route:
    return Route(path, Methods(get=_app(get), post=_app(post), put=_app(put), delete=_app(delete)))


def _app(endpoint: Endpoint | None) -> ASGIApp | None:
    return None if endpoint is None else request_response(endpoint)


def routes() -> list[BaseRoute]:
    return [
        Route("/v1/answers", Methods(post=answers.Answers())),
        _path("/v1/answers/{request_id}", delete=answers.stop_answer),
        _path("/v1/answers/{request_id}/ack", post=answers.acknowledge),
        _path("/v1/search", get=knowledge.search),
        _path("/v1/sources/{chunk_id}", get=knowledge.source),
        _path("/v1/explain", post=explaining.explain),
        _path("/v1/traces", delete=explaining.erase),
        _path("/v1/documents", get=documents.list_documents, post=documents.upload),
        _path("/v1/documents/{document_id}", get=documents.get_document, delete=documents.delete_document),
        _path("/v1/documents/{document_id}/acl", put=governing.set_acl),
        _path("/v1/documents/{document_id}/approval", post=governing.judge),
        _path("/v1/tasks", get=tasks.list_tasks),
        _path("/v1/tasks/{task_id}", get=tasks.get_task, delete=tasks.cancel_task),
        Route("/v1/tasks/{task_id}/events", Methods(get=tasks.TaskEvents())),
        _path("/v1/releases", get=releases.list_releases, post=releases.build_release),
        _path("/v1/knowledge-bases", get=releases.list_knowledge_bases),
        _path("/v1/releases/{release_id}/diff", get=releases.diff_release),
        _path("/v1/releases/rollback", post=releases.roll_back_release),
        _path("/v1/releases/{release_id}/activate", post=releases.activate_release),
        _path("/v1/revocations", get=revocations.list_revocations, post=revocations.revoke),
        _path("/v1/revocations/{revocation_id}/lift", post=revocations.lift_revocation),
        _path("/v1/apikeys", get=apikeys.list_keys, post=apikeys.create_key),
        _path("/v1/apikeys/{key_id}", delete=apikeys.revoke_key),
        _path("/v1/sessions", get=operations.list_sessions),
        _path("/v1/sessions/{request_id}", delete=operations.kill_session),
        _path("/healthz", get=operations.health),
        _path("/readyz", get=operations.ready),
        _path("/metrics", get=operations.metrics),
        _path("/", get=chat_page),
        Mount("/static", Methods(get=StaticFiles(directory=_STATIC))),
    ]
