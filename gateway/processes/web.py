"""Serving: one uvicorn server over open services, with a drain on SIGTERM and SIGINT."""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from gateway.app import create_app
from gateway.bootstrap.opening import open_services
from gateway.observe.logging import configure_logging, get_logger
from gateway.processes.inherited import inherited
from gateway.processes.listening import bound, url_of
from gateway.settings import Settings
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import CloseReason
from gateway.web.connection import Connection, connection_class

_KEEP_ALIVE_S = 5
#: after the bound, readers have so long for their last event
_LAST_WORD_S = 1.0
_AFTER_DRAIN_S = 3


#: told the address and how to stop, once the server answers; must return at once
OnReady = Callable[[str, Callable[[], bool]], None]


class GatewayServer(uvicorn.Server):
    """Stops in order: no new work, running streams until the drain bound, then their last event.

    A connection that hasn't taken it within a second more is cut off: nobody waits for its reader.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        registry: SessionRegistry,
        drain_s: float,
        on_ready: OnReady,
    ) -> None:
        super().__init__(config)
        self._registry = registry
        self._drain_s = drain_s
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready(url_of(self.servers[0].sockets[0]), self.stop)

    def stop(self) -> bool:
        """As SIGTERM would; callable from any thread. False when it is stopping already."""
        if self.should_exit:
            return False
        self._loop.call_soon_threadsafe(self.handle_exit, signal.SIGTERM, None)
        return True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals go through the loop, and aren't raised again afterwards: the parts close in order."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            self._registry.refuse_new()
            self._loop.call_later(self._drain_s, self._registry.cancel_all, CloseReason.SHUTTING_DOWN)
            self._loop.call_later(self._drain_s + _LAST_WORD_S, self._cut_off_the_stuck)
        super().handle_exit(sig, frame)

    def _cut_off_the_stuck(self) -> None:
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, Connection) and connection.unsent():
                connection.abort()


async def serve(settings: Settings, listener: socket.socket, on_ready: OnReady) -> None:
    """Serves until told to stop. Raises ConfigurationError when it must not start."""
    log = get_logger("server")
    async with open_services(settings) as services:
        config = uvicorn.Config(
            create_app(settings, services),
            http=connection_class(settings),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(settings.drain_s) + _AFTER_DRAIN_S,
        )
        server = GatewayServer(config, services.registry, settings.drain_s, on_ready)
        _keep_for_good()
        log.info("server.starting", data_dir=str(settings.data_dir))
        await server.serve(sockets=[listener])
        log.info("server.stopped")


def _keep_for_good() -> None:
    """What is there by now lasts as long as the process: no collection looks through it again. Each full one
    took 0.2 s of CPU for 230,000 objects, in which no stream moved; without them it takes none.
    """
    gc.collect()
    gc.freeze()


def run(settings: Settings, on_ready: OnReady) -> None:
    """Serves in this process alone. Blocks until the server has stopped and every part is closed."""
    with bound(settings.host, settings.port) as listener:
        _run_on(listener, settings, on_ready)


def run_web_process(settings: Settings, listener_fd: int, line_fd: int) -> None:
    """Serves as one of several, until told to stop by a signal or by the end of the supervisor."""
    with inherited(listener_fd, line_fd, settings.drain_s) as given:
        _run_on(given.listener, settings, lambda _url, _stop: given.tell_answering())


def _run_on(listener: socket.socket, settings: Settings, on_ready: OnReady) -> None:
    configure_logging(settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, listener, on_ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop
