"""The table of paths."""

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from gateway.web.routes import apikeys, documents, knowledge, operations, releases
from gateway.web.routes.answers import Answers, stop_answer

_STATIC = Path(__file__).parent / "static"


async def chat_page(_: Request) -> Response:
    return FileResponse(_STATIC / "index.html", headers={"Cache-Control": "no-cache"})


def routes() -> list[BaseRoute]:
    return [
        Route("/v1/answers", Answers(), methods=["POST"]),
        Route("/v1/answers/{request_id}", stop_answer, methods=["DELETE"]),
        Route("/v1/search", knowledge.search),
        Route("/v1/sources/{chunk_id}", knowledge.source),
        Route("/v1/documents", documents.upload, methods=["POST"]),
        Route("/v1/documents", documents.list_documents),
        Route("/v1/documents/{document_id}", documents.get_document),
        Route("/v1/documents/{document_id}", documents.delete_document, methods=["DELETE"]),
        Route("/v1/tasks/{task_id}", documents.get_task),
        Route("/v1/tasks/{task_id}", documents.cancel_task, methods=["DELETE"]),
        Route("/v1/releases", releases.list_releases),
        Route("/v1/releases", releases.build_release, methods=["POST"]),
        Route("/v1/releases/rollback", releases.roll_back_release, methods=["POST"]),
        Route("/v1/releases/{release_id}/activate", releases.activate_release, methods=["POST"]),
        Route("/v1/revocations", releases.list_revocations),
        Route("/v1/revocations", releases.revoke, methods=["POST"]),
        Route("/v1/revocations/{revocation_id}/lift", releases.lift_revocation, methods=["POST"]),
        Route("/v1/apikeys", apikeys.list_keys),
        Route("/v1/apikeys", apikeys.create_key, methods=["POST"]),
        Route("/v1/apikeys/{key_id}", apikeys.revoke_key, methods=["DELETE"]),
        Route("/v1/sessions", operations.list_sessions),
        Route("/v1/sessions/{request_id}", operations.kill_session, methods=["DELETE"]),
        Route("/healthz", operations.health),
        Route("/readyz", operations.ready),
        Route("/metrics", operations.metrics),
        Route("/", chat_page),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
