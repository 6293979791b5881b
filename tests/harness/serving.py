"""An app on a real socket, served by uvicorn in the test's own event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp

from gateway.app import create_app
from gateway.web.connection import Connection, connection_class
from tests.harness.world import World


class _QuietServer(uvicorn.Server):
    """Leaves the test process's signal handlers alone and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        self.listening.set()


@asynccontextmanager
async def serving(app: ASGIApp, http: type[Connection] = Connection) -> AsyncIterator[int]:
    """The port the app answers on."""
    config = uvicorn.Config(
        app, port=0, http=http, ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=2
    )
    server = _QuietServer(config)
    task = asyncio.create_task(server.serve())
    try:
        listening = asyncio.create_task(server.listening.wait())
        await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def serving_world(world: World) -> AsyncIterator[int]:
    app, http = create_app(world.settings, world.services), connection_class(world.settings)
    async with followed(world), serving(app, http) as port:
        yield port


@asynccontextmanager
async def followed(world: World) -> AsyncIterator[None]:
    """The world's revocation feed runs, as it does in a server."""
    feed = world.services.feed
    await feed.step()
    task = asyncio.create_task(feed.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
