"""Gateways to evaluate: one of one's own that is thrown away afterwards, in a process or in memory."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal

from gateway.app import create_app
from gateway.bootstrap.identity import local_key
from gateway.bootstrap.offline import open_offline
from gateway.client import GatewayClient
from gateway.errors import GatewayError
from gateway.processes.listening import bound, url_of
from gateway.settings import Settings

TENANT, SUBJECT = "evaluation", "evaluator"
GROUP = "evaluators"
#: what asking with the gate's number takes, and what filling takes on top of it
ASKING = ("ask", "operate")
FILLING = ("ask", "operate", "ingest", "release")
_TTL_S = 86_400
_STOP_S = 30.0
#: what belongs to an installation and not to how well it finds things
_OF_INSTALLATIONS = (
    *("ENV", "HOST", "PORT", "DATA_DIR", "WORKERS", "SERVE_IMPORTS", "SECRETS_DIR", "LOG_LEVEL"),
    *("DATABASE_URL", "MILVUS_URI", "MILVUS_TOKEN", "REDIS_URL", "OBJECT_STORE_URL", "JOURNAL_URL"),
    *("OIDC_ISSUER", "OIDC_AUDIENCE", "OIDC_JWKS_URL", "URL", "TOKEN"),
)
#: a busy machine must not turn into a refusal or another order, and nobody else is kept from a place
_PATIENT = {
    "GATEWAY_LOG_LEVEL": "error",
    "GATEWAY_EMBED_CAP_MS": "10000",
    "GATEWAY_RETRIEVAL_CAP_MS": "10000",
    "GATEWAY_RERANK_CAP_MS": "10000",
    "GATEWAY_RERANK_WAIT_MS": "10000",
    "GATEWAY_CATALOG_CAP_MS": "10000",
    "GATEWAY_FIRST_TOKEN_CAP_MS": "20000",
    "GATEWAY_TOTAL_CAP_MS": "60000",
    "GATEWAY_REQUESTS_PER_MINUTE": "10000000",
}


class EvaluationFailed(GatewayError):
    """The gateway that was to be evaluated didn't start, or couldn't be filled."""

    code = "evaluation_failed"
    title = "The evaluation could not be carried out"


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway to ask. ``kind``: temporary, offline or running; ``token_of``: a token with these scopes."""

    kind: str
    url: str
    token_of: Callable[[Sequence[str]], str] = field(repr=False)
    transport: httpx2.BaseTransport | None = None

    def client(self, scopes: Sequence[str] = ASKING) -> GatewayClient:
        return GatewayClient(self.url, self.token_of(scopes), transport=self.transport)


def running_gateway(url: str, token: str) -> Target:
    """One that somebody else runs; it is read and nothing else."""
    return Target("running", url, lambda _: token)


@contextlib.contextmanager
def temporary_gateway() -> Iterator[Target]:
    """An embedded one in a process of its own, over a folder that is removed; it ends when we do.

    Embedder, weights and thresholds are those of the environment; every part of an installation is
    left out. Raises ConfigurationError, EvaluationFailed.
    """
    with TemporaryDirectory(prefix="qa-gateway-eval-") as name:
        environment = _environment(Path(name))
        settings = Settings(data_dir=Path(name))
        key = local_key(settings)

        def token_of(scopes: Sequence[str]) -> str:
            return key.sign(audience=settings.token_audience, **_claims(scopes))

        with bound("127.0.0.1", 0) as listener, _serving(listener, environment):
            yield Target("temporary", url_of(listener), token_of)


@contextlib.contextmanager
def _serving(listener: socket.socket, environment: Mapping[str, str]) -> Iterator[None]:
    ours, theirs = socket.socketpair()
    given = (listener.fileno(), theirs.fileno())
    command = (sys.executable, "-P", "-m", "gateway", "web-process")
    with ours:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [*command, "--listener-fd", str(given[0]), "--line-fd", str(given[1])],
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                start_new_session=True,
                env=dict(environment),
            )
        try:
            if not ours.recv(1):
                raise EvaluationFailed("the temporary gateway ended before it answered")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment(folder: Path) -> dict[str, str]:
    left_out = {f"GATEWAY_{name}" for name in _OF_INSTALLATIONS}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**_PATIENT, **kept, "GATEWAY_DATA_DIR": str(folder)}


def _claims(scopes: Sequence[str]) -> dict[str, Any]:
    return {
        "tenant": TENANT,
        "subject": SUBJECT,
        "groups": [GROUP],
        "scopes": list(scopes),
        "ttl_s": _TTL_S,
    }


@contextlib.contextmanager
def offline_gateway() -> Iterator[Target]:
    """Twins of every store in this process, without a socket: the same figures on every machine.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    changes = {n.removeprefix("GATEWAY_").lower(): v for n, v in _PATIENT.items()}
    settings = Settings(**changes)  # type: ignore[arg-type]  # pydantic reads them
    with start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(open_offline(settings)) as offline:
            app = create_app(settings, offline.services)
            with portal.wrap_async_context_manager(app.router.lifespan_context(app)):
                yield Target(
                    "offline",
                    "http://offline",
                    lambda scopes: offline.sign(**_claims(scopes)),
                    InProcess(app, portal),
                )


class InProcess(httpx2.BaseTransport):
    """Blocking calls of an app that runs in a portal's loop."""

    def __init__(self, app: object, portal: BlockingPortal) -> None:
        self._asgi = httpx2.ASGITransport(app=app)  # type: ignore[arg-type]  # any ASGI app
        self._portal = portal

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._portal.call(self._sent, request.method, request.url, request.headers, request.read())

    async def _sent(
        self, method: str, url: httpx2.URL, headers: httpx2.Headers, content: bytes
    ) -> httpx2.Response:
        answer = await self._asgi.handle_async_request(
            httpx2.Request(method, url, headers=headers, content=content)
        )
        return httpx2.Response(answer.status_code, headers=answer.headers, content=await answer.aread())
