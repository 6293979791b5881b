"""A real redis-server for tests: on a free loopback port, in memory only, gone with the test process."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.harness.missing import program

INSTALL = "apt-get install redis-server"

_DATABASES = 1000
_START_S = 30.0
_LOOK_S = 0.01
_ATTEMPTS = 5


class RedisServer:
    """One server that tests may stop, start and pause; its port stays the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._program = program("redis-server", INSTALL, "/usr/sbin")
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = itertools.cycle(range(1, _DATABASES))
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def fresh(self) -> str:
        """The URL of an empty database of this server."""
        url = f"redis://127.0.0.1:{self.port}/{next(self._databases)}"
        with contextlib.closing(redis.Redis.from_url(url)) as client:
            client.flushdb()
        return url

    def through(self, port: int, url: str) -> str:
        """The same database by another port: a proxy's, a replica's."""
        return url.replace(f":{self.port}/", f":{port}/")

    def start(self) -> None:
        """Returns once it answers. Does nothing when it runs already."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [*_DYING_WITH_US, self._program, *self._options()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait_until_it_answers(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kills it and returns when it is gone: every key is lost. Does nothing when it is stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """The same port, empty."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """It hangs: connections stay and are even accepted, nothing is answered."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Goes on where it was, commands that arrived meanwhile included."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("this server is stopped")
        self._process.send_signal(number)

    def _options(self) -> list[str]:
        options = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "databases": str(_DATABASES),
            "dir": str(self._folder),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "repl-diskless-sync-delay": "0",  # a replica of a test needn't wait for others
        }
        return [part for name, value in options.items() for part in (f"--{name}", value)]

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_S
        pause = threading.Event()
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            while process.poll() is None and time.monotonic() < until:
                try:
                    if client.info("server")["process_id"] == process.pid:
                        return
                except redis.ConnectionError:
                    pause.wait(_LOOK_S)
        raise RuntimeError("redis-server doesn't answer")


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """A started server with its working folder, killed in the end."""
    server = _started(folder)
    try:
        yield server
    finally:
        server.stop()


def _started(folder: Path) -> RedisServer:
    for _ in range(_ATTEMPTS - 1):  # somebody else may take the free port first
        server = RedisServer(folder)
        with contextlib.suppress(RuntimeError):
            server.start()
            return server
    server = RedisServer(folder)
    server.start()
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _with_us() -> list[str]:
    """Words in front of a command that end it when the test process is killed, where the system can."""
    setpriv = "/usr/bin/setpriv"
    return [setpriv, "--pdeathsig", "KILL"] if os.access(setpriv, os.X_OK) else []


_DYING_WITH_US = _with_us()
