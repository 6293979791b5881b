"""Parts that die, freeze, fill up or come late under a real server: it says so, and works again by itself."""

import asyncio
import contextlib
import os
import resource
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.ingest.building import build_document
from loadtest.model_stub import ModelStub
from tests.harness.process import LITE, PARSER, GatewayProcess, eventually, gateway_process, gone
from tests.harness.wire import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"


def another(name: str, padding: int = 0) -> dict[str, str]:
    """A document that nobody has imported; the padding is white space."""
    return {f"{name}.md": f"# About {name}\n\nThe {name} opens at nine o'clock.\n" + "\n" * padding}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """One process that knows TEXT, for every fault it has to survive without a restart."""
    env = {"GATEWAY_PARSE_CAP_S": "5", "GATEWAY_TASK_LEASE_S": "3"}
    async with gateway_process(tmp_path_factory.mktemp("recovery"), env=env) as one:
        await one.learn(TEXT)
        yield one
        assert await one.stop() == 0


async def answered(gateway: GatewayProcess) -> None:
    """The question is answered, with its source."""
    status, events, problem = await gateway.ask(QUESTION)
    assert status == 200, problem
    assert events[-1].name == "done", events[-1]
    assert events[-1].data["status"] == "ANSWERED"
    assert "42" in "".join(event.data["text"] for event in events if event.name == "delta")


@pytest.mark.soak
async def test_a_killed_vector_store_is_replaced(gateway: GatewayProcess) -> None:
    """Unready and 503 meanwhile, then answers again, out of another child and the same server."""
    first = gateway.child(LITE)
    os.kill(first, signal.SIGKILL)
    await gateway.until_ready(ready=False)
    status, parts = await gateway.readiness()
    if status == 503:
        assert parts == {**parts, "vector_store": False, "catalog": True, "model": True}
    status, events, problem = await gateway.ask(QUESTION)
    if status == 200:  # it was quicker than we were
        assert events[-1].name == "done"
    else:
        assert (status, problem["code"]) == (503, "vector_store_unavailable")
    await gateway.until_ready()
    assert gateway.child(LITE) != first
    await answered(gateway)


@pytest.mark.soak
async def test_a_frozen_vector_store_costs_a_deadline_and_no_more(gateway: GatewayProcess) -> None:
    """504 in the name of the retrieval; the thawed child answers at once, and nothing stays taken."""
    child = gateway.child(LITE)
    os.kill(child, signal.SIGSTOP)
    try:
        status, _, problem = await gateway.ask(QUESTION)
    finally:
        os.kill(child, signal.SIGCONT)
    assert (status, problem["code"]) == (504, "deadline_exceeded")
    assert "retrieval" in problem["detail"]
    await gateway.until_ready()
    await answered(gateway)
    assert await gateway.metric("gateway_bulkhead_in_use", name="retrieval") == 0


@contextlib.contextmanager
def locked_catalog(gateway: GatewayProcess) -> Iterator[None]:
    """Somebody else, say a backup tool, holds the database's write lock."""
    with contextlib.closing(sqlite3.connect(gateway.data_dir / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


@pytest.mark.soak
async def test_a_locked_catalog_stops_imports_but_no_question(gateway: GatewayProcess) -> None:
    """Nothing is accepted that can't be written down; reads go on; then imports do too."""
    with locked_catalog(gateway):
        refusal = await gateway.upload(another("library"))
        assert (refusal.status_code, refusal.json()["code"]) == (503, "catalog_unavailable")
        assert int(refusal.headers["retry-after"]) >= 1
        await answered(gateway)
    assert await sources(gateway) == ["limits.md"]
    await gateway.learn(another("library"))
    assert await sources(gateway) == ["library.md", "limits.md"]


async def sources(gateway: GatewayProcess) -> list[str]:
    answer = await gateway.call("GET", "/v1/documents?knowledge_base=handbook", "ingest")
    return sorted(document["source"] for document in answer.json()["documents"])


@contextlib.contextmanager
def full_disk(gateway: GatewayProcess, size: int) -> Iterator[None]:
    """No file of the server may grow beyond ``size`` bytes: writes fail as on a disk that is full."""
    _, hard = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (hard, hard))


def objects(gateway: GatewayProcess) -> list[Path]:
    return sorted(path for path in (gateway.data_dir / "objects").rglob("*") if path.is_file())


KIB = 1024
FULL: dict[str, tuple[int, int, tuple[int, str]]] = {
    # name -> (bytes a file may have, bytes of the document, status and code)
    "object": (512 * KIB, 900 * KIB, (503, "object_store_unavailable")),
    "spool": (1536 * KIB, 3000 * KIB, (507, "storage_full")),
}


@pytest.mark.parametrize(("room", "size", "refused"), FULL.values(), ids=FULL)
async def test_a_full_disk_refuses_a_document_whole(
    gateway: GatewayProcess, room: int, size: int, refused: tuple[int, str]
) -> None:
    """No file and no record of it; with space the very same upload succeeds."""
    document = another(f"archive-{size}", padding=size)
    before, known = objects(gateway), await sources(gateway)
    with full_disk(gateway, room):
        refusal = await gateway.upload(document)
        assert (refusal.status_code, refusal.json()["code"]) == refused
        await answered(gateway)
    assert objects(gateway) == before
    assert await sources(gateway) == known
    await gateway.learn(document)
    assert await sources(gateway) == sorted([*known, *document])


async def test_a_disk_without_any_room_is_told(gateway: GatewayProcess) -> None:
    """Unready in the name of the data folder, 507, and nothing is lost; ready again by itself."""
    document = another("attic", padding=8 * KIB)
    before, known = objects(gateway), await sources(gateway)
    with full_disk(gateway, KIB):
        await gateway.until_ready(ready=False)
        told = (await gateway.call("GET", "/readyz")).json()
        assert (told["parts"]["data_folder"], told["parts"]["catalog"]) == (False, True)
        assert told["details"]["data_folder"]["code"] == "storage_full"
        refusal = await gateway.upload(document)
        assert (refusal.status_code, refusal.json()["code"]) == (507, "storage_full")
    assert (objects(gateway), await sources(gateway)) == (before, known)
    await gateway.until_ready()
    await gateway.learn(document)


async def test_a_start_takes_nothing_of_the_reserve(tmp_path: Path) -> None:
    """It is ready for all but imports, and says so."""
    async with gateway_process(tmp_path, env={"GATEWAY_DATA_RESERVE_MB": str(2**40)}) as gateway:
        status, told = (answer := await gateway.call("GET", "/readyz")).status_code, answer.json()
        assert (status, told["parts"]["data_room"], told["degraded"]) == (200, False, ["data_room"])
        refusal = await gateway.upload(another("attic"))
        assert (refusal.status_code, refusal.json()["code"]) == (507, "storage_full")
        assert await gateway.stop() == 0


async def test_a_catalog_without_room_accepts_nothing(gateway: GatewayProcess) -> None:
    """503 and no record; questions are answered meanwhile; with space the upload succeeds."""
    document = another("canteen")
    known = await sources(gateway)
    log = (gateway.data_dir / "catalog.db-wal").stat().st_size
    assert log > len(gateway.stderr), "the limit is meant for the catalog, not for the server's messages"
    with full_disk(gateway, log):
        refusal = await gateway.upload(document)
        assert (refusal.status_code, refusal.json()["code"]) == (503, "catalog_unavailable")
        await answered(gateway)
    assert await sources(gateway) == known
    await gateway.learn(document)


async def test_a_reader_that_is_killed_at_work_is_replaced(gateway: GatewayProcess) -> None:
    """SIGKILL in the middle of a document: the import succeeds all the same, with another child."""
    await gateway.learn(another("garage"))
    first = gateway.child(PARSER)
    os.kill(first, signal.SIGSTOP)
    task_id = (await gateway.upload(another("chapel"))).json()["task_id"]
    await stage(gateway, task_id, "building")
    os.kill(first, signal.SIGKILL)
    task = await gateway.task_ended(task_id)
    assert (task["state"], task["error"]) == ("SUCCEEDED", None)
    assert gateway.child(PARSER) != first


@pytest.mark.soak
async def test_a_reader_that_hangs_fails_one_document_with_a_reason(gateway: GatewayProcess) -> None:
    """The cap ends it; the next import has a new child."""
    await gateway.learn(another("workshop"))
    first = gateway.child(PARSER)
    os.kill(first, signal.SIGSTOP)
    task = await gateway.task_ended((await gateway.upload(another("bakery"))).json()["task_id"])
    assert (task["state"], task["error"]["code"]) == ("FAILED", "documents_failed")
    assert [d["state"] for d in task["documents"]] == ["FAILED"]
    assert task["documents"][0]["error"].startswith("too_complex")
    await gone(first)
    await gateway.learn(another("bakery"))


async def stage(gateway: GatewayProcess, task_id: str, name: str) -> None:
    """Returns once the task is at that stage."""

    async def there() -> bool:
        task = await gateway.task(task_id)
        assert task["state"] in {"PENDING", "RUNNING"}, task
        return bool(task["state"] == "RUNNING" and task["stage"] == name)

    await eventually(there)


@pytest.mark.soak
async def test_an_import_outlives_the_server(tmp_path: Path) -> None:
    """kill -9 while a document is read, and again while its rows are written: it ends once and whole."""
    env = {"GATEWAY_TASK_LEASE_S": "2", "GATEWAY_PARSE_CAP_S": "120"}
    async with gateway_process(tmp_path, env=env) as first:
        await first.learn(TEXT)
        os.kill(first.child(PARSER), signal.SIGSTOP)
        task_id = (await first.upload(ROOMS)).json()["task_id"]
        await stage(first, task_id, "building")
        first.send(signal.SIGKILL)
        await first.ended()
    async with gateway_process(tmp_path, env=env) as second:
        await stage(second, task_id, "indexing")
        await grown(tmp_path / "data" / "milvus" / "store")
        store = second.child(LITE)
        os.kill(store, signal.SIGSTOP)
        second.send(signal.SIGKILL)
        await second.ended()
        os.kill(store, signal.SIGCONT)
        await gone(store)
    async with gateway_process(tmp_path, env=env) as third:
        task = await third.task_ended(task_id)
        assert (task["state"], task["error"]) == ("SUCCEEDED", None)
        assert {d["state"] for d in task["documents"]} == {"READY"}
        claims = [claim["fence"] for claim in third.log("task.claimed") if claim["task"] == task_id]
        assert claims == [1, 2, 3]
        await answered(third)
        releases = (await third.call("GET", "/v1/releases?knowledge_base=handbook", "release")).json()
        (active,) = [r for r in releases["releases"] if r["state"] == "ACTIVE"]
        assert active["chunks"] == passages(TEXT) + passages(ROOMS)
        found = await third.call("GET", "/v1/search?query=opens&knowledge_base=handbook&top_k=100", "ask")
        ids = [result["chunk_id"] for result in found.json()["results"]]
        assert len(ids) == len(set(ids)) > 10
        assert await third.stop() == 0
    assert await rows(tmp_path / "data", active["knowledge_revision"]) == active["chunks"]


ROOMS = {"rooms.md": "# Rooms\n\n" + "".join(f"## Room {n}\n\nIt opens at {n}.\n\n" for n in range(1500))}


def passages(texts: Mapping[str, str]) -> int:
    return sum(len(build_document(name, "", text.encode()).passages) for name, text in texts.items())


async def grown(folder: Path) -> None:
    """Returns once more has been written below the folder than there was."""

    def size() -> int:
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    async def more() -> bool:
        return size() > before

    before = size()
    await eventually(more)


async def rows(data_dir: Path, revision: str) -> int:
    """How many rows of a revision the store holds."""
    child = LiteChild(data_dir / "milvus")
    await child.start()
    store = MilvusStore(child.endpoint)
    try:
        return await store.count((await BundledEmbedder.load()).space, revision)
    finally:
        await store.aclose()
        await child.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def modelled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayProcess, int]]:
    """A server whose model isn't there yet, and the port on which it is expected."""
    async with free_port() as port:
        env = {"GATEWAY_MODEL_BASE_URL": f"http://127.0.0.1:{port}/v1", "GATEWAY_IDLE_CAP_MS": "60000"}
    async with gateway_process(tmp_path_factory.mktemp("modelled"), env=env) as one:
        yield one, port
        assert await one.stop() == 0


@contextlib.asynccontextmanager
async def free_port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def model_at(port: int, **script: Any) -> AsyncIterator[ModelStub]:
    stub = ModelStub()
    stub.script(**script)
    await stub.start(port)
    try:
        yield stub
    finally:
        await stub.close()


@pytest.mark.soak
async def test_it_starts_without_its_model_and_finds_it_later(modelled: tuple[GatewayProcess, int]) -> None:
    """Unready because of the model alone, imports work, questions fail with a word; no restart."""
    gateway, port = modelled
    status, parts = await gateway.readiness()
    assert (status, {name for name, good in parts.items() if not good}) == (503, {"model"})
    await gateway.learn(TEXT)
    status, events, _ = await gateway.ask(QUESTION)
    assert [event.name for event in events] == ["meta", "error"]
    assert (events[-1].data["code"], events[-1].data["partial"]) == ("upstream_failed", False)
    async with model_at(port):
        await gateway.until_ready()
        await answered(gateway)
    await gateway.until_ready(ready=False)


@pytest.mark.soak
async def test_a_model_that_goes_away_in_an_answer_ends_that_answer(
    modelled: tuple[GatewayProcess, int],
) -> None:
    """Partial and `upstream_failed`, never `done`; with the model back the next answer is whole."""
    gateway, port = modelled
    if "limits.md" not in await sources(gateway):
        await gateway.learn(TEXT)
    with anyio.fail_after(60):
        async with connected(gateway.port) as wire:
            async with model_at(port, stall_after_tokens=2) as stub:
                await wire.ask(gateway.token(), QUESTION)
                await stub.until(lambda s: any(call.tokens == 2 for call in s.calls))
                events = wire.events()
                assert [(await anext(events)).name for _ in range(2)] == ["meta", "delta"]
            rest = [event async for event in events]
    assert [event.name for event in rest if event.name != "delta"] == ["error"]
    assert (rest[-1].data["code"], rest[-1].data["partial"]) == ("upstream_failed", True)
    async with model_at(port):
        await gateway.until_ready()
        await answered(gateway)
