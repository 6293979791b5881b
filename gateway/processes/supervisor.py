"""The supervisor: keeps N web processes on one listening socket, and ends with the last of them.

All processes accept from one queue. SO_REUSEPORT would give each a queue of its own and spread
connections more evenly (200 at once over 2 processes: 93 to 107 against 66 to 134), but there a new
question waits behind a process that is busy, starting again or dead while others have nothing to do, what
waits is reset when its process ends, and a second deployment on the port goes unnoticed. Streams are
long: when one begins matters more than where. Each process admits by its own limits, so leave room in
``sse_sessions`` for the uneven share.

A web process is a program of its own, not a fork: no loop, lock or thread of the supervisor is in it.
It has a session of its own, so that Ctrl-C reaches it through the supervisor alone.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import TaskGroup

from gateway.bootstrap.fitness import refuse_unfit
from gateway.errors import GatewayError
from gateway.observe.logging import configure_logging, get_logger
from gateway.processes.inherited import CLOSE_S
from gateway.processes.listening import bound, url_of
from gateway.settings import Settings

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BACK_OFF_S = (0.5, 30.0)
#: a process that lived this long starts the back-off anew
_SETTLED_S = 60.0
_FIRST_STARTS = 3
#: exit codes of a process that has said why it can't start
_SAID_WHY = frozenset({1, 2})
#: how a process may end after it was told to: in order, or before it could handle the signal
_IN_ORDER = frozenset({0, -signal.SIGTERM})
_NOT_STARTED = 127  # as shells have it
#: what follows is called like what was in its place: the quota knows processes by name
_NAME = "GATEWAY_PROCESS_NAME"

_log = get_logger("supervisor")


class WebProcessEnded(GatewayError):
    """A web process ended before it answered, and didn't say why."""

    code = "web_process_ended"
    title = "A web process ended before it answered"


class WebProcess:
    """One running web process, seen from the supervisor."""

    def __init__(self, process: asyncio.subprocess.Process, line: socket.socket) -> None:
        self._process = process
        self._line = line

    @classmethod
    async def start(
        cls, command: Sequence[str], listener: socket.socket, environment: Mapping[str, str]
    ) -> "WebProcess":
        """Runs ``command --listener-fd N --line-fd N``."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        given = (listener.fileno(), theirs.fileno())
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                *("--listener-fd", str(given[0]), "--line-fd", str(given[1])),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=given,
                start_new_session=True,
                env=dict(environment),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def answers(self) -> bool:
        """Once it accepts connections; False when it ends before."""
        try:
            return bool(await asyncio.get_running_loop().sock_recv(self._line, 1))
        except ConnectionError:
            return False

    async def ended(self) -> int:
        """Its exit code; minus the signal's number when one ended it."""
        return await self._process.wait()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def aclose(self) -> None:
        """Nothing of it is left after this."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self.send(signal.SIGKILL)
            await self._process.wait()
            self._line.close()


class Supervisor:
    """``count`` places for web processes. The first start is whole or fails; after it, no place is given up.

    ``command`` gets ``--listener-fd N --line-fd M`` added, for ``processes.inherited``. ``back_off_s``:
    (first, longest) wait before a place is filled again. ``stop_cap_s``: how long processes may take to
    end once told to.
    """

    def __init__(
        self,
        command: Sequence[str],
        listener: socket.socket,
        count: int,
        *,
        environment: Mapping[str, str],
        stop_cap_s: float,
        back_off_s: tuple[float, float] = _BACK_OFF_S,
    ) -> None:
        self._command = tuple(command)
        self._listener = listener
        self._environment = environment
        self._stop_cap_s = stop_cap_s
        self._back_off_s = back_off_s
        self._answered = [anyio.Event() for _ in range(count)]
        self._running: set[WebProcess] = set()
        self._stopping = anyio.Event()
        self._exit_code = 0
        self._unexplained: str | None = None

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Until a signal; ``on_ready`` is called once all processes answer.

        The exit code: 0 when all ended in order, else that of a process that said why it can't start,
        else 1. Raises WebProcessEnded when one can't start and didn't say why.
        """
        with self._handling_signals():
            async with anyio.create_task_group() as guard:
                guard.start_soon(self._kill_late_ones)
                async with anyio.create_task_group() as places:
                    await self._fill(places, on_ready)
                guard.cancel_scope.cancel()
        if self._unexplained is not None:
            raise WebProcessEnded(self._unexplained)
        return self._exit_code

    async def _fill(self, places: TaskGroup, on_ready: Callable[[], None]) -> None:
        """The first one alone: what is wrong with all is said once, and what the first one makes is there."""
        first, *others = self._answered
        places.start_soon(self._keep, 0, first)
        await first.wait()
        if not self._stopping.is_set():
            for number, answered in enumerate(others, start=1):
                places.start_soon(self._keep, number, answered)
        for answered in others:
            await answered.wait()
        if not self._stopping.is_set():
            on_ready()

    async def _keep(self, number: int, answered: anyio.Event) -> None:
        """One place: a process, and after its end another one, until told to stop."""
        first_s, longest_s = self._back_off_s
        wait_s, failures = first_s, 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            code = await self._run_one(number, answered)
            failures += 1
            if self._stopping.is_set():
                self._ended_after_stop(code)
            elif self._is_first_start and (code in _SAID_WHY or failures == _FIRST_STARTS):
                self._give_up(code)
            else:
                if time.monotonic() - begun >= _SETTLED_S:
                    wait_s = first_s
                _log.warning("web_process.ended", exit_code=code, restart_in_s=wait_s)
                with anyio.move_on_after(wait_s):
                    await self._stopping.wait()
                wait_s = min(wait_s * 2, longest_s)

    async def _run_one(self, number: int, answered: anyio.Event) -> int:
        try:
            async with self._process(number) as process:
                if await process.answers():
                    _log.info("web_process.answering", pid=process.pid)
                    answered.set()
                return await process.ended()
        except OSError as error:  # no memory, no process id or no descriptor is left for it
            _log.error("web_process.not_started", reason=error.strerror)
            return _NOT_STARTED

    @asynccontextmanager
    async def _process(self, number: int) -> AsyncIterator[WebProcess]:
        environment = {**self._environment, _NAME: f"{self._environment.get(_NAME, '')}:{number}"}
        process = await WebProcess.start(self._command, self._listener, environment)
        self._running.add(process)
        if self._stopping.is_set():  # told so while it started
            process.send(signal.SIGTERM)
        try:
            yield process
        finally:
            self._running.discard(process)
            await process.aclose()

    @property
    def _is_first_start(self) -> bool:
        return not all(answered.is_set() for answered in self._answered)

    def _give_up(self, code: int) -> None:
        if code in _SAID_WHY:
            self._exit_code = code
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._unexplained = f"a web process ended with {how} before all were there, {_FIRST_STARTS} times"
        self._stop()

    def _ended_after_stop(self, code: int) -> None:
        if code not in _IN_ORDER:
            self._exit_code = self._exit_code or 1

    def _stop(self) -> None:
        self._stopping.set()
        self._listener.close()  # else connections would be taken for as long as this process lives
        for process in self._running:
            process.send(signal.SIGTERM)
        for answered in self._answered:
            answered.set()

    async def _kill_late_ones(self) -> None:
        await self._stopping.wait()
        await anyio.sleep(self._stop_cap_s)
        self._kill()

    def _kill(self) -> None:
        for process in self._running:
            _log.warning("web_process.killed", pid=process.pid)
            process.send(signal.SIGKILL)

    def _on_signal(self) -> None:
        if self._stopping.is_set():
            self._kill()
        else:
            _log.info("supervisor.stopping")
            self._stop()

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def supervise(settings: Settings, on_ready: Callable[[str], None]) -> int:
    """Serves with ``settings.workers`` processes until told to stop; ``on_ready`` gets the address.

    The exit code. Raises ConfigurationError before anything is started, WebProcessEnded.
    """
    refuse_unfit(settings)
    configure_logging(settings.log_level)
    with bound(settings.host, settings.port) as listener:
        url = url_of(listener)
        supervisor = Supervisor(
            (sys.executable, "-P", "-m", "gateway", "web-process"),
            listener,
            settings.workers,
            environment=_environment(settings, listener.getsockname()[1]),
            stop_cap_s=settings.drain_s + CLOSE_S,
        )
        with asyncio.Runner() as runner:
            return runner.run(supervisor.run(lambda: on_ready(url)))


def _environment(settings: Settings, port: int) -> dict[str, str]:
    """Ours, and on top of it what the command line may have said."""
    return os.environ | {
        "GATEWAY_DATA_DIR": str(settings.data_dir),
        "GATEWAY_HOST": settings.host,
        "GATEWAY_WORKERS": str(settings.workers),
        _NAME: settings.process_name or f"{socket.gethostname()}:{port}",
    }
