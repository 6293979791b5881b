"""Serving: one uvicorn server over open services, with a drain on SIGTERM and SIGINT."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from gateway.app import create_app
from gateway.bootstrap.embedded import open_services
from gateway.errors import ConfigurationError
from gateway.observe.logging import configure_logging, get_logger
from gateway.settings import Settings
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import CloseReason
from gateway.web.connection import Connection

_KEEP_ALIVE_S = 5
_AFTER_DRAIN_S = 3


#: told the address and how to stop, once the server answers; must return at once
OnReady = Callable[[str, Callable[[], bool]], None]


class GatewayServer(uvicorn.Server):
    """Stops in order: no new work, running streams until the drain bound, then their last event."""

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
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._on_ready(f"http://{_address(host, port)}", self.stop)

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
        super().handle_exit(sig, frame)


async def serve(settings: Settings, on_ready: OnReady) -> None:
    """Serves until told to stop. Raises ConfigurationError when it must not start."""
    log = get_logger("server")
    with _listening(settings.host, settings.port) as listener:
        async with open_services(settings) as services:
            config = uvicorn.Config(
                create_app(settings, services),
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=int(settings.drain_s) + _AFTER_DRAIN_S,
            )
            server = GatewayServer(
                config,
                services.registry,
                settings.drain_s,
                on_ready,
            )
            log.info("server.starting", data_dir=str(settings.data_dir))
            await server.serve(sockets=[listener])
            log.info("server.stopped")


def _address(host: str, port: int) -> str:
    """As in a URL (RFC 3986, section 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """Bound before anything else is opened, so that a taken port is the first thing said."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ConfigurationError(
                "address_unusable", f"can't listen on {_address(host, port)}: {error.strerror}"
            ) from error
        yield listener
    finally:
        listener.close()


def run(settings: Settings, on_ready: OnReady) -> None:
    """Blocks until the server has stopped and every part is closed."""
    configure_logging(settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(settings, on_ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # not on every platform
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def write_ready_file(path: Path, content: Mapping[str, object]) -> None:
    """Whole or not at all, and for its owner's eyes: it may hold tokens."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    draft.replace(path)
