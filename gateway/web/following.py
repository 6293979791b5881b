"""Following: a task's progress as events, for as long as its reader may read it."""

import time
from collections.abc import AsyncIterator, Mapping

import anyio
from starlette.datastructures import Headers

from gateway.access.principal import Principal
from gateway.errors import (
    Forbidden,
    GatewayError,
    NotFound,
    ShuttingDown,
    TokenExpired,
    Unauthenticated,
    Unavailable,
)
from gateway.web.receiving import bearer_token
from gateway.web.services import Services
from gateway.web.sse import frame
from gateway.web.tasks_json import ENDED, task_json

#: between two looks at the catalog
_POLL_S = 0.5
#: how often the reader's rights are verified again
_RIGHTS_S = 1.0


class TaskFollower:
    """``progress`` events whenever the task has changed, then one last event: ``ended``, ``revoked`` when the
    reader's rights are gone, or ``error``.

    A part that doesn't answer is waited for as long as rights may rest on the word of one moment.
    """

    def __init__(self, services: Services, headers: Headers, principal: Principal, task_id: str) -> None:
        self._services = services
        self._token = bearer_token(headers)
        self._principal = principal
        self._task_id = task_id
        self._bound_s = services.settings.revocation_bound_ms / 1000
        self._verified_at = self._seen_at = time.monotonic()

    async def events(self) -> AsyncIterator[bytes]:
        sequence, shown = 0, None
        while True:
            name, content = await self._look()
            if name != b"progress" or content != shown:
                sequence, shown = sequence + 1, content
                yield frame(name, sequence, content)
            if name != b"progress":
                return
            await anyio.sleep(_POLL_S)

    async def _look(self) -> tuple[bytes, Mapping[str, object]]:
        """The next event, new or not."""
        while True:
            try:
                if self._services.registry.draining:
                    raise ShuttingDown
                await self._verify()
                return await self._read()
            except (Unauthenticated, Forbidden) as error:
                expired = isinstance(error, TokenExpired)
                return b"revoked", {"reason": "token_expired" if expired else "user"}
            except Unavailable as error:
                if time.monotonic() >= min(self._verified_at, self._seen_at) + self._bound_s:
                    return b"error", _problem(error)
            except GatewayError as error:
                return b"error", _problem(error)
            await anyio.sleep(_POLL_S)

    async def _verify(self) -> None:
        asked_at = time.monotonic()
        if asked_at < self._verified_at + _RIGHTS_S:
            return
        principal = await self._services.verifier.verify(self._token)
        await self._services.authorizer.refuse_revoked(principal)
        self._verified_at = asked_at

    async def _read(self) -> tuple[bytes, Mapping[str, object]]:
        asked_at = time.monotonic()
        task = await self._services.catalog.task(self._principal.tenant, self._task_id)
        if task is None:
            raise NotFound("the task is forgotten")
        self._seen_at = asked_at
        return b"ended" if task.state in ENDED else b"progress", task_json(task)


def _problem(error: GatewayError) -> Mapping[str, object]:
    return {"code": error.code, "title": error.title, "detail": error.detail}
