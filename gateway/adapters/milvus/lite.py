"""LiteChild: Milvus Lite in a child process, kept alive, so that its threads never hold our GIL.

The child has its own session and ends with this process, also by kill -9. It picks a free loopback port
and reports it over its stdout pipe, after it listens. The port counts only while the child is alive and
once it has answered, through that port, with the folder's marker: an ephemeral port may belong to
somebody else a moment after a crash. Each start has a new secret, without which the child refuses calls.

A child that dies or stops answering is replaced, with back-off; ``ready`` is false in between.
"""

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread

from gateway.adapters.milvus.client import Connection, Endpoint, bounded
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, VectorStoreUnavailable
from gateway.observe.logging import get_logger

_log = get_logger("lite")

_PROGRAM = "gateway.adapters.milvus.lite_server"
# as in milvus_lite_server, which this module must not import: it loads Milvus Lite itself
_EXIT_IN_USE = 73
_LOCK_WAIT_S = 3.0
_START_CAP_S = 60.0
_STOP_CAP_S = 8.0
_HEALTH_CAP_MS = 10_000
_UNHEALTHY_AFTER = 2
# unless the operator says otherwise: threads that wait for one another in loops made a search of 10,000
# vectors a third dearer and, beside other work, twice as slow
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


class _FolderInUse(VectorStoreUnavailable):
    """Another process holds the folder."""


class LiteChild:
    """One folder's child. ``start`` before use, ``aclose`` last of all parts.

    ``back_off_s`` is (first, longest) wait before a restart; it starts over once a child is ready.
    ``health_every_s`` is how often a living child is asked for its marker. ``program`` is the child's module.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        back_off_s: tuple[float, float] = (0.1, 10.0),
        health_every_s: float = 5.0,
        health_cap_ms: float = _HEALTH_CAP_MS,
        lock_wait_s: float = _LOCK_WAIT_S,
        program: str = _PROGRAM,
    ) -> None:
        self._data_dir = data_dir
        self._back_off_s = back_off_s
        self._health_every_s = health_every_s
        self._health_cap_ms = health_cap_ms
        self._lock_wait_s = lock_wait_s
        self._program = program
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: Endpoint | None = None
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._down.set()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """The child is alive and has shown the marker."""
        return self._endpoint is not None and self.pid is not None

    @property
    def pid(self) -> int | None:
        """The living child's process id."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def uri(self) -> str:
        """Raises VectorStoreUnavailable while not ready."""
        return self.endpoint().uri

    def endpoint(self) -> Endpoint:
        """For MilvusStore. Raises VectorStoreUnavailable at once while not ready."""
        if self._endpoint is None or self.pid is None:
            raise VectorStoreUnavailable("the vector store is starting")
        return self._endpoint

    async def wait_ready(self) -> None:
        """Returns once ``ready``; bound it yourself."""
        await self._up.wait()

    async def wait_down(self) -> None:
        """Returns once not ``ready``; bound it yourself."""
        await self._down.wait()

    async def health(self, deadline: Deadline) -> None:
        """Asks the child for the folder's marker, through its port.

        Raises VectorStoreUnavailable (down, or somebody else answers), DeadlineExceeded.
        """
        connection, endpoint = self._connection, self.endpoint()
        if connection is None or connection.endpoint != endpoint:
            raise VectorStoreUnavailable()
        await self._ask_for_marker(connection, deadline)

    async def start(self) -> None:
        """Returns when the child is ready; from then on it is supervised.

        Raises ConfigurationError("data_dir_in_use") when another process holds the folder,
        VectorStoreUnavailable when the child doesn't come up.
        """
        try:
            await self._launch()
        except _FolderInUse as error:
            await self._kill()
            raise ConfigurationError(
                "data_dir_in_use", f"another process uses the vector store in {self._data_dir}"
            ) from error
        except BaseException:
            await self._kill()
            raise
        self._supervisor = asyncio.create_task(self._supervise())

    async def aclose(self) -> None:
        """Asks the child to close its store, waits, and kills it when that takes too long."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.wait([self._supervisor])
            self._supervisor = None
        with anyio.CancelScope(shield=True):
            await self._forget()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()  # end of file is the sign to stop
                with anyio.move_on_after(_STOP_CAP_S):
                    await self._process.wait()
            await self._kill()

    async def _supervise(self) -> None:
        first, longest = self._back_off_s
        wait_s = first
        while True:
            try:
                if self.ready:
                    await self._until_lost()
                    wait_s = first
                await self._kill()
                await anyio.sleep(wait_s)
                wait_s = min(wait_s * 2, longest)
                await self._launch()
            except (VectorStoreUnavailable, DeadlineExceeded, OSError) as error:
                _log.warning("lite.start_failed", reason=type(error).__name__)
            except Exception:  # noqa: BLE001 - nobody else restarts the store: logged, and tried again
                _log.exception("lite.defect")

    async def _until_lost(self) -> None:
        """Returns when the child has ended or has failed to answer several times in a row."""
        assert self._process is not None  # noqa: S101 - only after a launch
        failures = 0
        while failures < _UNHEALTHY_AFTER:
            with anyio.move_on_after(self._health_every_s):
                await self._process.wait()
                return
            try:
                await self.health(Deadline.after(self._health_cap_ms))
                failures = 0
            except (VectorStoreUnavailable, DeadlineExceeded):
                failures += 1

    async def _launch(self) -> None:
        """Starts a child and believes it only after the marker. Raises VectorStoreUnavailable."""
        secret = secrets.token_hex(32)
        with anyio.move_on_after(_START_CAP_S):
            port = await self._spawn(secret)
            endpoint = Endpoint(f"http://127.0.0.1:{port}", secret)
            self._connection = await Connection.open(endpoint)
            await self._ask_for_marker(self._connection, Deadline.after(_START_CAP_S * 1000))
            if self.pid is None:
                raise VectorStoreUnavailable("the vector store ended while starting")
            self._endpoint = endpoint
            self._down.clear()
            self._up.set()
            return
        raise VectorStoreUnavailable("the vector store did not start in time")

    async def _spawn(self, secret: str) -> int:
        """A child that listens; returns its port. Raises _FolderInUse, VectorStoreUnavailable."""
        await anyio.to_thread.run_sync(lambda: self._data_dir.mkdir(parents=True, exist_ok=True))
        async with self._error_file() as stderr:
            self._process = process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._program),
                *("--data-dir", str(self._data_dir), "--lock-wait-s", str(self._lock_wait_s)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for us; the child is stopped last
                env=_ONE_THREAD | os.environ | {"GRPC_VERBOSITY": "NONE", "PYTHONUNBUFFERED": "1"},
            )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        process.stdin.write(secret.encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            if await process.wait() == _EXIT_IN_USE:
                raise _FolderInUse()
            raise VectorStoreUnavailable("the vector store did not start")
        try:
            return int(json.loads(line)["port"])
        except (ValueError, KeyError, TypeError) as error:
            raise VectorStoreUnavailable("the vector store reported no port") from error

    @contextlib.asynccontextmanager
    async def _error_file(self) -> AsyncIterator[int]:
        # Emptied at each start; the child's own log rotates, so nothing here grows without bound.
        path = self._data_dir / "lite.err"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        handle = await anyio.to_thread.run_sync(lambda: os.open(path, flags, 0o600))
        try:
            yield handle
        finally:
            os.close(handle)

    async def _ask_for_marker(self, connection: Connection, deadline: Deadline) -> None:
        """Raises VectorStoreUnavailable, DeadlineExceeded."""
        await bounded(deadline, lambda: self._show_marker(connection, deadline))

    async def _show_marker(self, connection: Connection, deadline: Deadline) -> None:
        marker = await anyio.to_thread.run_sync(self._read_marker)
        if not await connection.reader.has_collection(f"folder_{marker}", timeout=deadline.remaining()):
            raise VectorStoreUnavailable("somebody else answers on the vector store's port")

    def _read_marker(self) -> str:
        return (self._data_dir / "marker").read_text(encoding="ascii").strip()

    async def _forget(self) -> None:
        self._endpoint = None
        self._up.clear()
        self._down.set()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _kill(self) -> None:
        """No child and no port after this; shielded, as it runs in cleanups."""
        with anyio.CancelScope(shield=True):
            await self._forget()
            process, self._process = self._process, None
            if process is None:
                return
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            if process.stdin is not None:
                process.stdin.close()
            await process.wait()
