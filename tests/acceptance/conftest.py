"""The acceptance suite's sides: the demo on each, worlds on each, started once a test process.

A test runs on both sides when it asks for ``demo`` or ``side``, and on twins as well when it asks for
``worlds``. ``embedded_demo``, ``servers`` and the like are one of them alone.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx2
import psutil
import pytest
import pytest_asyncio

from gateway.cli.demo import IMPORT_SCOPES, import_samples
from gateway.client import EventReader, GatewayClient, StreamEvent
from gateway.samples import load_samples
from tests.harness.grounds import GROUNDS, MemoryWorlds, Worlds, opened
from tests.harness.issuer import serving_issuer
from tests.harness.process import gateway_process
from tests.harness.sides import EMBEDDED, SIDES, Embedded, Servers, Side, embedding_endpoint

if TYPE_CHECKING:
    from tests.harness.milvus_server import MilvusServer
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer
    from tests.harness.s3 import S3Server

START_S = 180
STOP_S = 40
READY_LINE = "The demo is ready"


@dataclass(frozen=True)
class Answer:
    """One whole answer: status, headers, events; ``problem`` when it is no stream."""

    status: int
    headers: Mapping[str, str]
    events: tuple[StreamEvent, ...]
    problem: Mapping[str, Any] | None
    raw: bytes

    @property
    def meta(self) -> Mapping[str, Any]:
        assert self.events, self.problem
        assert self.events[0].name == "meta"
        return self.events[0].data

    @property
    def text(self) -> str:
        return "".join(event.data["text"] for event in self.events if event.name == "delta")

    @property
    def done(self) -> Mapping[str, Any]:
        assert self.events, self.problem
        assert self.events[-1].name == "done", self.events[-1]
        return self.events[-1].data


@dataclass(frozen=True)
class Demo:
    """A served gateway with the sample knowledge bases."""

    side: Side
    base_url: str
    data_dir: Path
    tokens: Mapping[str, str]
    knowledge_bases: Mapping[str, Sequence[str]]
    http: httpx2.Client

    def sign(
        self,
        tenant: str = "acme",
        subject: str = "tester",
        groups: Sequence[str] = (),
        scopes: Sequence[str] = ("ask",),
        ttl_s: float = 600,
    ) -> str:
        """A token that the demo believes."""
        return self.side.sign(
            self.data_dir, tenant=tenant, subject=subject, groups=groups, scopes=scopes, ttl_s=ttl_s
        )

    def client(self, token: str) -> GatewayClient:
        return GatewayClient(self.base_url, token)

    def request(self, method: str, path: str, token: str | None = None, **arguments: Any) -> httpx2.Response:
        headers = dict(arguments.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.http.request(method, path, headers=headers, **arguments)

    def ask(self, token: str, question: str, **fields: Any) -> Answer:
        response = self.request("POST", "/v1/answers", token, json={"question": question, **fields})
        if response.status_code != 200:
            return Answer(response.status_code, response.headers, (), dict(response.json()), response.content)
        events = tuple(EventReader().feed(response.content))
        return Answer(200, response.headers, events, None, response.content)

    def metric(self, series: str) -> float:
        """The value of one series, written as it stands in the exposition."""
        for line in self.http.get("/metrics").text.splitlines():
            name, _, value = line.rpartition(" ")
            if name == series:
                return float(value)
        raise AssertionError(f"there is no series {series}")

    @property
    def model_calls(self) -> float:
        return self.metric('gateway_model_calls_total{kind="generation"}')


def environment() -> dict[str, str]:
    """Ours without any GATEWAY_* setting: the demo runs with its defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}


def wait_for_line(process: subprocess.Popen[str], wanted: str, complaints: Path) -> None:
    """Returns once the line was printed; keeps reading afterwards, so that no pipe fills up."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=START_S)
        except Empty:
            line = None
        if line is None:
            pytest.fail(f"the demo did not start:\n{complaints.read_text()[-4000:]}")
        if wanted in line:
            return


@pytest.fixture(scope="session")
def embedded() -> Embedded:
    """The embedded side."""
    return EMBEDDED


@pytest.fixture(scope="session")
def servers(
    postgres: "PostgresServer", milvus: "MilvusServer", redis: "RedisServer", s3: "S3Server"
) -> Iterator[Servers]:
    """The side of servers, all of them of this test process."""
    with serving_issuer() as issuer, embedding_endpoint() as embedding_url:
        yield Servers(postgres, milvus, redis, s3, issuer, embedding_url)


# Those of a module may differ in their ids; what they lead to is there once for the whole session.


@pytest.fixture(scope="module", params=SIDES)
def side(request: pytest.FixtureRequest) -> Side:
    """Each side."""
    found: Side = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=SIDES)
def demo(request: pytest.FixtureRequest) -> Demo:
    """The sample knowledge bases on each side."""
    found: Demo = request.getfixturevalue(f"{request.param}_demo")
    return found


@pytest.fixture(scope="module", params=GROUNDS)
def worlds(request: pytest.FixtureRequest) -> Worlds:
    """Worlds of twins and of each side's parts. Those belong to the session's loop, and so do the tests."""
    found: Worlds = request.getfixturevalue(f"{request.param}_worlds")
    return found


@pytest.fixture(scope="session")
def memory_worlds() -> Worlds:
    return MemoryWorlds()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_worlds(
    embedded: Embedded, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Worlds]:
    async with opened(embedded, tmp_path_factory.mktemp("embedded-worlds")) as worlds:
        yield worlds


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers_worlds(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Worlds]:
    async with opened(servers, tmp_path_factory.mktemp("servers-worlds")) as worlds:
        yield worlds


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def servers_demo(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    """``serve`` and a ``worker`` over servers, with the samples imported as the demo imports them."""
    async with gateway_process(tmp_path_factory.mktemp("servers-demo"), side=servers) as gateway:

        def sign(tenant: str, subject: str, groups: Sequence[str], scopes: Sequence[str]) -> str:
            return servers.sign(
                gateway.data_dir, tenant=tenant, subject=subject, groups=groups, scopes=scopes, ttl_s=7200
            )

        def importer(tenant: str) -> str:
            return sign(tenant, "demo", (), IMPORT_SCOPES)

        samples = load_samples()
        bases = await anyio.to_thread.run_sync(import_samples, samples, gateway.base_url, importer)
        tokens = {name: sign(u.tenant, u.subject, u.groups, ("ask",)) for name, u in samples.users.items()}
        with httpx2.Client(base_url=gateway.base_url, timeout=60, trust_env=False) as http:
            yield Demo(servers, gateway.base_url, gateway.data_dir, tokens, bases, http)
        assert await gateway.stop() == 0, gateway.stderr[-4000:]


@pytest.fixture(scope="session")
def embedded_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """``qa-gateway demo`` as a person starts it; stopped by Ctrl-C, and then nothing may be left."""
    folder = tmp_path_factory.mktemp("demo")
    ready_file, complaints = folder / "ready.json", folder / "stderr.txt"
    command = Path(sys.executable).parent / "qa-gateway"
    with complaints.open("w") as stderr:
        process = subprocess.Popen(
            [
                command,
                "demo",
                *("--port", "0"),
                *("--data-dir", str(folder / "data")),
                *("--ready-file", str(ready_file)),
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment(),
            start_new_session=True,
        )
    family: list[psutil.Process] = []
    try:
        wait_for_line(process, READY_LINE, complaints)
        ready = json.loads(ready_file.read_text())
        with httpx2.Client(base_url=ready["base_url"], timeout=60, trust_env=False) as http:
            yield Demo(
                EMBEDDED,
                ready["base_url"],
                Path(ready["data_dir"]),
                ready["tokens"],
                ready["knowledge_bases"],
                http,
            )
        family = psutil.Process(process.pid).children(recursive=True)
        assert family, "the demo keeps its vector store in a child"
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_S) == 0, complaints.read_text()[-4000:]
        _, alive = psutil.wait_procs(family, timeout=STOP_S)
        assert not alive, f"left behind: {alive}"
        assert not in_group(process.pid)
    finally:
        for left in (process, *family):
            if left is process and process.poll() is None:
                process.kill()
                process.wait()
            elif isinstance(left, psutil.Process) and left.is_running():
                left.kill()
        if process.stdout is not None:
            process.stdout.close()


def in_group(group: int) -> list[int]:
    """The processes of one process group."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found
