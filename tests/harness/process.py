"""A real ``qa-gateway`` in a process of its own: started, watched, killed, asked."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import psutil

from gateway.client import StreamEvent
from tests.harness import wire
from tests.harness.sides import EMBEDDED, Side

T = TypeVar("T")

LITE = "gateway.adapters.milvus.lite_server"
PARSER = "gateway.adapters.children.build_loop"

#: long enough for a start on a machine that is busy with something else
PATIENCE_S = 120.0
_LOOK_S = 0.05
_COMMAND = Path(sys.executable).with_name("qa-gateway")
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


async def eventually(look: Callable[[], Awaitable[T]], within_s: float = PATIENCE_S) -> T:
    """The first true answer of ``look``: for what another process does without telling anybody.

    Raises TimeoutError.
    """
    with anyio.fail_after(within_s):
        while not (found := await look()):  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(_LOOK_S)
    return found


async def gone(pid: int) -> None:
    """Returns when that process has ended, whoever its parent is."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with anyio.fail_after(PATIENCE_S):
            await anyio.wait_readable(handle)
    finally:
        os.close(handle)


async def refused(port: int) -> bool:
    """Whether nobody listens there any more."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return True
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return False


@dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """What ``--json`` printed."""
        return [json.loads(line) for line in self.out.splitlines()]


#: each question is answered by itself, unless a test is about sharing
_UNSHARED = {"GATEWAY_ANSWER_CACHE_TTL_S": "0", "GATEWAY_ANSWER_SHARING": "false"}


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The test run's own, without its gateway settings, and what is ``given`` on top."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    return kept | _UNSHARED | dict(given or {})


async def run_command(*arguments: str, env: Mapping[str, str] | None = None) -> Finished:
    """One ``qa-gateway`` command to its end."""
    return await _finished(str(_COMMAND), *arguments, env=env)


async def run_commands(*commands: Sequence[str], env: Mapping[str, str] | None = None) -> list[Finished]:
    """Many of them one after the other in one process: starting each takes longer than what it does."""
    ended = await _finished(sys.executable, "-c", _ONE_BY_ONE, json.dumps(commands), env=env)
    assert ended.code == 0, ended
    return [Finished(*each) for each in json.loads(ended.out)]


#: prints (exit code, stdout, stderr) of each command
_ONE_BY_ONE = """
import contextlib, io, json, sys
from gateway.cli import run
ended = []
for command in json.loads(sys.argv[1]):
    out, err, sys.argv[1:] = io.StringIO(), io.StringIO(), command
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run()
    ended.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""


async def _finished(*command: str, env: Mapping[str, str] | None) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(env),
    )
    try:
        with anyio.fail_after(PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Finished(process.returncode or 0, out.decode(), err.decode())


class GatewayProcess:
    """A running ``serve`` or ``demo``. ``ready`` is what its ready file says."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        ready: Mapping[str, Any],
        errors: Path,
        side: Side = EMBEDDED,
    ) -> None:
        self._process = process
        self._errors = errors
        self.side = side
        self.ready = ready
        self.base_url: str = ready["base_url"]
        self.port = int(self.base_url.rpartition(":")[2])
        self.data_dir = Path(ready["data_dir"])

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """Everything it has said so far: logs and messages."""
        return self._errors.read_text()

    def log(self, event: str) -> list[dict[str, Any]]:
        """The log records of one event, oldest first."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("{")]
        return [record for line in lines if (record := json.loads(line)).get("event") == event]

    def children(self) -> list[int]:
        """Process ids of its whole tree, without itself."""
        return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]

    def child(self, program: str) -> int:
        """The process id of its one child that runs ``LITE`` or ``PARSER``."""
        (found,) = [
            child.pid
            for child in psutil.Process(self.pid).children()
            if program in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
        ]
        return found

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has one."""
        with anyio.fail_after(PATIENCE_S):
            return await self._process.wait()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends the signal, waits for the end of its whole tree; returns the exit code."""
        tree = self.children()
        self.send(number)
        code = await self.ended()
        for pid in tree:
            await gone(pid)
        return code

    # -- what it is asked ------------------------------------------------------------------------

    def token(
        self,
        *scopes: str,
        tenant: str = "acme",
        subject: str = "ann",
        groups: Sequence[str] = ("staff",),
    ) -> str:
        """A token that the server believes; scope ``ask`` unless told otherwise."""
        return self.side.sign(
            self.data_dir,
            tenant=tenant,
            subject=subject,
            groups=groups,
            scopes=scopes or ("ask",),
            ttl_s=3600,
        )

    async def call(self, method: str, path: str, *scopes: str, **arguments: Any) -> httpx2.Response:
        """One request with a token of these scopes, on a connection of its own."""
        headers = {"Authorization": f"Bearer {self.token(*scopes)}"}
        async with httpx2.AsyncClient(base_url=self.base_url, trust_env=False, timeout=60) as http:
            return await http.request(method, path, headers=headers, **arguments)

    async def ask(self, question: str, **fields: Any) -> tuple[int, list[StreamEvent], dict[str, Any]]:
        """``(status, events, problem)``; one of the last two is empty."""
        with anyio.fail_after(PATIENCE_S):
            async with wire.connected(self.port) as connection:
                await connection.ask(self.token(), question, **fields)
                head = await connection.read_head()
                if head.status == 200:
                    return 200, await connection.all_events(), {}
                return head.status, [], await connection.json()

    async def readiness(self) -> tuple[int, dict[str, bool]]:
        """``(status, parts)`` of ``/readyz``."""
        answer = await self.call("GET", "/readyz")
        return answer.status_code, answer.json()["parts"]

    async def until_ready(self, *, ready: bool = True) -> None:
        """Returns once ``/readyz`` says so."""

        async def says_so() -> bool:
            return ((await self.readiness())[0] == 200) is ready

        await eventually(says_so)

    async def metric(self, name: str, /, **labels: str) -> float:
        """One sample of ``/metrics``."""
        (value,) = (
            v for n, v in await self.metrics(name) if all(f'{k}="{w}"' in n for k, w in labels.items())
        )
        return value

    async def metrics(self, name: str) -> list[tuple[str, float]]:
        """Every sample of one name, with its labels."""
        lines = (await self.call("GET", "/metrics")).text.splitlines()
        samples = [line.rpartition(" ") for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return [(sample, float(value)) for sample, _, value in samples]

    async def upload(self, texts: Mapping[str, str | bytes], **fields: Any) -> httpx2.Response:
        """Sends documents for everybody in ``staff``, as one task, to be activated."""
        given = {"knowledge_base": "handbook", "allow": ["group:staff"], "activate": "true", **fields}
        files = [("file", (name, text)) for name, text in texts.items()]
        return await self.call("POST", "/v1/documents", "ingest", "release", data=given, files=files)

    async def task(self, task_id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.call("GET", f"/v1/tasks/{task_id}", "ingest")).json()
        return found

    async def task_ended(self, task_id: str) -> dict[str, Any]:
        """The task, once it has ended in any way."""

        async def look() -> dict[str, Any] | None:
            task = await self.task(task_id)
            return task if task["state"] in _ENDED else None

        found = await eventually(look)
        assert found is not None
        return found

    async def learn(self, texts: Mapping[str, str | bytes], **fields: Any) -> dict[str, Any]:
        """Imports and releases documents; returns the ended task, which has succeeded."""
        accepted = await self.upload(texts, **fields)
        assert accepted.status_code == 202, accepted.text
        task = await self.task_ended(accepted.json()["task_id"])
        assert task["state"] == "SUCCEEDED", task
        return task


@asynccontextmanager
async def gateway_process(
    folder: Path,
    *,
    side: Side = EMBEDDED,
    command: str = "serve",
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[GatewayProcess]:
    """``serve`` on a free port over ``folder/data`` and empty parts of the side, with a ``worker`` beside it
    where the side has one; whatever is left of them in the end is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    env = {**await side.fresh(), **(env or {})}
    async with contextlib.AsyncExitStack() as stack:
        if side.imports_apart:
            await stack.enter_async_context(_importing(folder, env))
        yield await stack.enter_async_context(
            started(
                command,
                *("--port", "0", "--data-dir", str(folder / "data"), *arguments),
                ready_file=folder / "ready.json",
                errors=folder / "stderr.txt",
                env=env,
                side=side,
            )
        )


@asynccontextmanager
async def _importing(folder: Path, env: Mapping[str, str]) -> AsyncIterator[None]:
    """A ``worker`` that gets ready while others do; in the end it must stop in order."""
    ready_file, errors = folder / "worker.json", folder / "worker.txt"
    async with spawned("worker", "--ready-file", str(ready_file), errors=errors, env=env) as process:
        yield

        async def ready_or_over() -> bool:
            return ready_file.exists() or process.returncode is not None

        await eventually(ready_or_over)
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        with anyio.fail_after(PATIENCE_S):
            assert await process.wait() == 0, errors.read_text()


@asynccontextmanager
async def started(
    *command: str,
    ready_file: Path,
    errors: Path,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (str(_COMMAND),),
    side: Side = EMBEDDED,
) -> AsyncIterator[GatewayProcess]:
    """The command as a process, once its ready file is there. Fails with its stderr when it ends before."""
    ready_file.unlink(missing_ok=True)
    asked = ("--ready-file", str(ready_file))
    async with spawned(*command, *asked, errors=errors, env=env, program=program) as process:

        async def ready_or_over() -> bool:
            return ready_file.exists() or process.returncode is not None

        await eventually(ready_or_over, within_s=2 * PATIENCE_S)
        assert ready_file.exists(), errors.read_text()
        yield GatewayProcess(process, json.loads(ready_file.read_text()), errors, side)


@asynccontextmanager
async def spawned(
    *command: str,
    errors: Path,
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = (str(_COMMAND),),
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process of its own; in the end it is killed, and so are its children."""
    with errors.open("a") as stderr:
        process = await asyncio.create_subprocess_exec(
            *program,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env=environment(env),
        )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            await _killed(process)


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    tree: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # it went by itself meanwhile
        tree = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    await process.wait()
    for child in tree:
        if child.is_running():
            child.kill()
        await gone(child.pid)
