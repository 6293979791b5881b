"""The processes of the overhead benchmark: model stub, bare forwarder, gateway, and the load on them."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from loadtest.overhead_text import DOCUMENTS, KNOWLEDGE_BASE, question
from tests.harness.process import GatewayProcess, environment, eventually, gone

_STOP_S = 20.0
_LINE_BYTES = 2**26
_SERVE = (sys.executable, "-c", "from gateway.cli import main; main()")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds so far, user and system, of a process by itself and of its children; ``rss`` in bytes."""

    own_s: float
    children_s: float
    rss: int


@dataclass(frozen=True, slots=True)
class Target:
    """A server that streams tokens: where it is, what it is asked, and what precedes its first token."""

    name: str
    pid: int
    port: int
    path: str
    body: Callable[[str], Mapping[str, Any]]
    mark: str
    token: str = ""

    def request(self, number: int) -> str:
        """The bytes of a whole HTTP request; ``number`` picks the question."""
        body = json.dumps(self.body(question(number)))
        head = [
            f"POST {self.path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",  # what is measured is the making
        ]
        if self.token:
            head.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*head, "", body])

    def usage(self) -> Usage:
        process = psutil.Process(self.pid)
        children = sum(_cpu_s(child) for child in process.children(recursive=True))
        return Usage(_cpu_s(process), children, process.memory_info().rss)


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Mapping[str, Any]]]:
    """The command, once it has written its ready file; in the end it is gone, and its children too."""
    ready_file, errors = _fresh(folder)
    with errors.open("w") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            *("--ready-file", str(ready_file)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env=environment(env),
        )
    try:

        async def ready_or_over() -> bool:
            return ready_file.exists() or process.returncode is not None

        await eventually(ready_or_over)
        if not ready_file.exists():
            raise SystemExit(f"{' '.join(command)} ended: {errors.read_text()[-2000:]}")
        yield process, json.loads(ready_file.read_text())
    finally:
        await _stopped(process)


def _fresh(folder: Path) -> tuple[Path, Path]:
    """Where its ready file and its messages go."""
    folder.mkdir(parents=True)
    return folder / "ready.json", folder / "stderr.txt"


async def _stopped(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    tree = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
    for child in tree:
        if child.is_running():
            child.kill()
        await gone(child.pid)


class Stub:
    """The scripted model in its process. ``base_url`` ends in ``/v1``."""

    def __init__(self, pid: int, base_url: str) -> None:
        self.base_url = base_url
        self.target = Target(
            "stub",
            pid,
            int(base_url.split(":")[2].partition("/")[0]),
            "/v1/chat/completions",
            _chat_body,
            _OPENAI_MARK,
        )
        self._http = httpx2.AsyncClient(base_url=base_url.removesuffix("/v1"), trust_env=False, timeout=60)

    async def script(self, **behaviour: Any) -> None:
        (await self._http.post("/_script", json=behaviour)).raise_for_status()

    async def produced(self) -> int:
        """Tokens said so far in the calls that it remembers."""
        calls = (await self._http.get("/_log")).json()
        return sum(call["tokens"] for call in calls)

    async def chats(self) -> int:
        """Answers asked of it, as far as it remembers."""
        calls = (await self._http.get("/_log")).json()
        return sum(call["kind"] == "chat" for call in calls)

    async def forget(self, calls: int) -> None:
        """Once that many calls have ended, whatever they were."""
        await self._http.get("/_log", params={"closed": calls, "timeout_ms": 10_000})
        await self._http.post("/_reset")

    async def aclose(self) -> None:
        await self._http.aclose()


#: in front of the first token, behind the empty delta that carries the role
_OPENAI_MARK = '"content":" '


def _chat_body(text: str) -> Mapping[str, Any]:
    return {"model": "stub", "stream": True, "messages": [{"role": "user", "content": text}]}


def _answers_body(text: str) -> Mapping[str, Any]:
    return {"question": text, "knowledge_base": KNOWLEDGE_BASE}


@contextlib.asynccontextmanager
async def stub_process(folder: Path) -> AsyncIterator[Stub]:
    command = (sys.executable, "-m", "loadtest.model_stub", "--port", "0")
    async with running(command, folder) as (process, ready):
        stub = Stub(process.pid, ready["base_url"])
        try:
            yield stub
        finally:
            await stub.aclose()


@contextlib.asynccontextmanager
async def bare_process(folder: Path, stub: Stub) -> AsyncIterator[Target]:
    upstream = f"{stub.base_url}/chat/completions"
    command = (sys.executable, "-m", "loadtest.bare_forwarder", "--upstream", upstream)
    async with running(command, folder) as (process, ready):
        port = int(ready["base_url"].rpartition(":")[2])
        yield Target("bare", process.pid, port, "/", _chat_body, _OPENAI_MARK)


def gateway_settings(stub: Stub, streams: int) -> dict[str, str]:
    """Room for every stream, and caps that a busy machine doesn't reach; the rest as it comes."""
    wide = str(4 * streams)
    return {
        "GATEWAY_MODEL_BASE_URL": stub.base_url,
        "GATEWAY_MODEL_NAME": "stub",
        "GATEWAY_GENERATION_CONCURRENCY": wide,
        "GATEWAY_QUOTA_CONCURRENCY": wide,
        "GATEWAY_SSE_SESSIONS": wide,
        "GATEWAY_REQUESTS_PER_MINUTE": "1000000",
        "GATEWAY_EMBEDDING_CONCURRENCY": wide,
        "GATEWAY_RETRIEVAL_CONCURRENCY": wide,
        "GATEWAY_EMBEDDING_WAIT_MS": "30000",
        "GATEWAY_RETRIEVAL_WAIT_MS": "30000",
        "GATEWAY_EMBED_CAP_MS": "30000",
        "GATEWAY_RETRIEVAL_CAP_MS": "30000",
        "GATEWAY_CATALOG_CAP_MS": "30000",
        "GATEWAY_CONNECT_CAP_MS": "30000",
        "GATEWAY_FIRST_TOKEN_CAP_MS": "30000",
        "GATEWAY_IDLE_CAP_MS": "30000",
        "GATEWAY_TOTAL_CAP_MS": "600000",
        "GATEWAY_MODEL_CONTEXT_TOKENS": "65536",
        "GATEWAY_MAX_OUTPUT_TOKENS": "32768",
    }


@contextlib.asynccontextmanager
async def gateway_process(
    folder: Path, settings: Mapping[str, str], notes: Path | None = None
) -> AsyncIterator[tuple[GatewayProcess, Target]]:
    """``qa-gateway serve``; with ``notes`` each SQLite statement is noted there."""
    counted = (sys.executable, "-m", "loadtest.overhead_reads", str(notes))
    command = (
        *(_SERVE if notes is None else counted),
        *("serve", "--port", "0", "--data-dir", str(folder.parent / "data")),
    )
    async with running(command, folder, settings) as (process, ready):
        gateway = GatewayProcess(process, ready, folder / "stderr.txt")
        yield (
            gateway,
            Target(
                "gateway",
                gateway.pid,
                gateway.port,
                "/v1/answers",
                _answers_body,
                "event: delta",
                gateway.token(),
            ),
        )


async def learn(gateway: GatewayProcess) -> None:
    """Imports and releases the benchmark's documents, through the HTTP API."""
    await gateway.learn(DOCUMENTS, knowledge_base=KNOWLEDGE_BASE)


class Load:
    """The load process and its commands; see ``loadtest.overhead_load``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Its answer. Ends the benchmark when a stream broke."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": command, **arguments}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(await self._process.stdout.readline() or b'{"error": "no load"}')
        if "error" in answer:
            raise SystemExit(f"{command}: {answer['error']}")
        return answer

    async def ask(self, target: Target, number: int) -> float:
        """One whole answer; milliseconds to its first token."""
        answer = await self.do("ask", port=target.port, request=target.request(number), mark=target.mark)
        return float(answer["first_ms"])

    async def open(self, target: Target, streams: int, every_s: float) -> list[float]:
        """Starts that many streams; milliseconds to the first token of each."""
        requests = [target.request(number) for number in range(streams)]
        answer = await self.do("open", port=target.port, requests=requests, mark=target.mark, every_s=every_s)
        return list(map(float, answer["first_ms"]))


@contextlib.asynccontextmanager
async def load_process() -> AsyncIterator[Load]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadtest.overhead_load"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ),
        limit=_LINE_BYTES,
    )
    try:
        yield Load(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
