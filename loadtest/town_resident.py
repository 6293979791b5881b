"""Resident: one process of a town, with an address of its own that it comes back to."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.harness.process import GatewayProcess, eventually, gone, spawned
from tests.harness.sides import Side

_COMMAND = str(Path(sys.executable).with_name("qa-gateway"))
_SETPRIV = "/usr/bin/setpriv"
_DYING_WITH_US = (_SETPRIV, "--pdeathsig", "KILL") if os.access(_SETPRIV, os.X_OK) else ()


class Resident:
    """A command that writes a ready file: started, stopped, killed, paused, and started again.

    It dies with this process, also when that is killed, where the system can.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Sequence[str],
        env: Mapping[str, str],
        program: Sequence[str] = (_COMMAND,),
    ) -> None:
        self.name = name
        self.errors = folder / f"{name}.txt"
        self.ready: Mapping[str, Any] = {}
        self._folder = folder
        self._command = tuple(command)
        self._env = dict(env)
        self._program = (*_DYING_WITH_US, *program)
        self._numbers = itertools.count(1)
        self._run: contextlib.AsyncExitStack | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Raises RuntimeError when it was never started or has been stopped."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is stopped")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    async def start(self) -> None:
        """Returns once it is ready. Raises RuntimeError with its last words when it ends instead."""
        ready_file = self._folder / f"{self.name}-{next(self._numbers)}.json"
        run = contextlib.AsyncExitStack()
        command = (*self._command, "--ready-file", str(ready_file))
        process = await run.enter_async_context(
            spawned(*command, errors=self.errors, env=self._env, program=self._program)
        )
        self._run, self._process = run, process

        async def ready_or_over() -> bool:
            return ready_file.exists() or process.returncode is not None

        try:
            await eventually(ready_or_over)
            if not ready_file.exists():
                raise RuntimeError(f"{self.name} has ended: {self.errors.read_text()[-2000:]}")
        except BaseException:
            await self.aclose()
            raise
        self.ready = json.loads(ready_file.read_text())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal and waits for the end of its whole tree; returns the exit code."""
        tree = self._tree()
        self.send(number)
        code = await self.process.wait()
        for one in tree:
            await gone(one.pid)
        await self.aclose()
        return code

    async def kill(self) -> None:
        """kill -9, of it alone: its children notice by themselves."""
        await self.stop(signal.SIGKILL)

    def pause(self) -> None:
        """It hangs, children included; connections to it stay and are even accepted."""
        self._send_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_all(signal.SIGCONT)

    async def aclose(self) -> None:
        """Whatever is left of it is killed."""
        run, self._run, self._process = self._run, None, None
        if run is not None:
            await run.aclose()

    def _send_all(self, number: signal.Signals) -> None:
        for one in (psutil.Process(self.pid), *self._tree()):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def _tree(self) -> list[psutil.Process]:
        return list(psutil.Process(self.pid).children(recursive=True))


class GatewayResident(Resident):
    """A ``serve`` on a port that stays the same. ``client`` asks it directly, past nginx."""

    def __init__(self, name: str, folder: Path, port: int, env: Mapping[str, str], side: Side) -> None:
        command = ("serve", "--port", str(port), "--data-dir", str(folder / f"{name}-data"))
        super().__init__(name, folder, command, {**env, "GATEWAY_PROCESS_NAME": name})
        self.port = port
        self._side = side

    @property
    def client(self) -> GatewayProcess:
        return GatewayProcess(self.process, self.ready, self.errors, self._side)
