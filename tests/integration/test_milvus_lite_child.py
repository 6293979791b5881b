"""The Milvus Lite child with real processes: killed, frozen, orphaned, refused, cancelled, closed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.lite import LiteChild
from gateway.adapters.milvus.store import MilvusStore
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, VectorStoreUnavailable
from tests.contract.vector_world import EAST, SPACE, fill, query, row, seen, soon
from tests.harness.process import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PARENT = """
import asyncio, sys
from pathlib import Path
from gateway.adapters.milvus.lite import LiteChild

async def main():
    child = LiteChild(Path(sys.argv[1]))
    await child.start()
    print(child.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared child's own."""
    return tmp_path_factory.mktemp("lite-child")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def child(folder: Path) -> AsyncIterator[LiteChild]:
    """One child whose health checks leave it alone, for tests that hold it up."""
    one = LiteChild(folder, health_every_s=600, lock_wait_s=0)
    await one.start()
    try:
        yield one
    finally:
        await one.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(child: LiteChild) -> AsyncIterator[MilvusStore]:
    """A store over the child, with one row in revision r1."""
    one = MilvusStore(child.endpoint)
    await one.prepare(SPACE)
    await fill(one, "r1", row())
    yield one
    await one.aclose()


def _pid(child: LiteChild) -> int:
    assert child.pid is not None
    return child.pid


async def _ended(pid: int) -> None:
    """Returns when the process has ended, by its file descriptor."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        await anyio.wait_readable(handle)
    finally:
        os.close(handle)


async def test_a_child_has_its_own_session_and_listens_on_loopback_only(child: LiteChild) -> None:
    """Ctrl-C doesn't reach it, and no other machine does."""
    process = psutil.Process(_pid(child))
    assert os.getsid(process.pid) == process.pid
    listening = [c for c in process.net_connections() if c.status == psutil.CONN_LISTEN]
    # gRPC listens on the IPv4 loopback address through a dual-stack socket
    assert [c.laddr.ip.removeprefix("::ffff:") for c in listening] == ["127.0.0.1"]
    assert child.uri == f"http://127.0.0.1:{listening[0].laddr.port}"
    await child.health(soon())


async def test_a_caller_without_the_secret_is_refused(child: LiteChild) -> None:
    """Other users of this machine can reach the port, and nothing behind it."""
    for token in ("", "wrong"):
        stranger = MilvusStore(lambda token=token: Endpoint(child.uri, token))  # type: ignore[misc]  # bound now
        with pytest.raises(VectorStoreUnavailable):
            await stranger.ping(soon())
        await stranger.aclose()


async def test_a_second_child_on_the_folder_is_refused(child: LiteChild, folder: Path) -> None:
    """Two processes on one folder would destroy it: the second doesn't start, the first goes on."""
    second = LiteChild(folder, lock_wait_s=0)
    with pytest.raises(ConfigurationError) as raised:
        await second.start()
    assert raised.value.reason == "data_dir_in_use"
    assert (second.pid, second.ready, child.ready) == (None, False, True)
    await second.aclose()


async def test_a_port_that_does_not_show_the_marker_is_not_believed(child: LiteChild, folder: Path) -> None:
    """Whoever answers on the port must hold this folder, not just speak the protocol."""
    file = folder / "marker"
    marker = file.read_text()
    file.write_text("0" * 32)
    try:
        with pytest.raises(VectorStoreUnavailable):
            await child.health(soon())
    finally:
        file.write_text(marker)
    await child.health(soon())


async def test_a_cancelled_search_returns_at_once_and_leaves_the_store_usable(
    child: LiteChild, store: MilvusStore
) -> None:
    """The child is held up, so the search is in flight when its task is cancelled."""
    await store.dense(query(), EAST, 5, soon())
    os.kill(_pid(child), signal.SIGSTOP)
    try:
        searches = [asyncio.create_task(store.dense(query(), EAST, 5, soon())) for _ in range(20)]
        await anyio.wait_all_tasks_blocked()
        for search in searches:
            search.cancel()
        with anyio.fail_after(2):
            ended = await asyncio.gather(*searches, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
    finally:
        os.kill(_pid(child), signal.SIGCONT)
    assert await seen(store, query(), ["one"]) == [{"one"}] * 3


async def test_a_deadline_ends_a_search_the_store_does_not_answer(
    child: LiteChild, store: MilvusStore
) -> None:
    """Every route gives up by its own clock; the store is usable afterwards."""
    await store.dense(query(), EAST, 5, soon())
    os.kill(_pid(child), signal.SIGSTOP)
    try:
        with anyio.fail_after(5):
            for read in (
                store.dense(query(), EAST, 5, Deadline.after(100)),
                store.lexical(query(), ("common",), 5, Deadline.after(100)),
                store.fetch(query(), ["one"], Deadline.after(100)),
                store.ping(Deadline.after(100)),
            ):
                with pytest.raises(DeadlineExceeded) as raised:
                    await read
                assert raised.value.stage == "retrieval"
    finally:
        os.kill(_pid(child), signal.SIGCONT)
    assert await seen(store, query(), ["one"]) == [{"one"}] * 3


async def test_a_killed_child_is_replaced_and_the_store_reconnects(tmp_path: Path) -> None:
    """Killed in the middle of a write: calls fail at once, then go on; the sealed revision is whole."""
    child = LiteChild(tmp_path, back_off_s=(0.05, 1.0))
    await child.start()
    store = MilvusStore(child.endpoint, batch_rows=1)
    try:
        await store.prepare(SPACE)
        await fill(store, "r1", *(row(f"c{i}") for i in range(3)))
        first = _pid(child)
        writing = asyncio.create_task(
            store.write(SPACE, "r2", [row(f"c{i}", kb_revision="r2") for i in range(5000)])
        )
        while await store.count(SPACE, "r2") == 0:
            await anyio.lowlevel.checkpoint()
        os.kill(first, signal.SIGKILL)
        with anyio.fail_after(10):
            with pytest.raises(VectorStoreUnavailable):
                await writing
            await child.wait_down()
        assert not child.ready
        for _ in range(3):
            with pytest.raises(VectorStoreUnavailable):
                await store.dense(query(), EAST, 5, soon())
        with anyio.fail_after(60):
            await child.wait_ready()
        assert _pid(child) != first
        assert await seen(store, query(), [f"c{i}" for i in range(3)]) == [{"c0", "c1", "c2"}] * 3
        assert 0 < await store.count(SPACE, "r2") < 5000
        await store.drop(SPACE, "r2")
        assert await store.count(SPACE, "r1") == 3
    finally:
        await store.aclose()
        await child.aclose()


@pytest.mark.soak
async def test_a_frozen_child_is_replaced(tmp_path: Path) -> None:
    """A child that lives but doesn't answer is no child: it is killed and another one started."""
    child = LiteChild(tmp_path, back_off_s=(0.05, 1.0), health_every_s=0.2, health_cap_ms=1000)
    await child.start()
    try:
        first = _pid(child)
        os.kill(first, signal.SIGSTOP)
        with anyio.fail_after(60):
            await child.wait_down()
            await child.wait_ready()
        assert _pid(child) != first
        assert not psutil.pid_exists(first)
    finally:
        await child.aclose()


@pytest.mark.soak
@pytest.mark.soak
async def test_a_child_that_dies_while_it_is_asked_for_the_marker_is_replaced(tmp_path: Path) -> None:
    """Its start fails at the first call, over a connection that stood; the next start comes all the same."""
    child = LiteChild(
        tmp_path, back_off_s=(0.05, 1.0), program="tests.integration.lite_dying_at_first_question"
    )
    await child.start()
    try:
        first = _pid(child)
        die = tmp_path / "die"
        die.touch()
        os.kill(first, signal.SIGKILL)
        with anyio.fail_after(60):
            await child.wait_down()
            await child.wait_ready()
        assert not die.exists(), "one child has died at the question"
        assert _pid(child) != first
        await child.health(soon())
    finally:
        await child.aclose()


@pytest.mark.soak
async def test_a_first_child_that_dies_at_the_marker_is_a_failed_start(tmp_path: Path) -> None:
    """The caller hears of it in our own words, and no process is left."""
    (tmp_path / "die").touch()
    child = LiteChild(tmp_path, program="tests.integration.lite_dying_at_first_question")
    with anyio.fail_after(60):
        with pytest.raises(VectorStoreUnavailable):
            await child.start()
    assert child.pid is None


@pytest.mark.soak
async def test_a_defect_does_not_end_the_watch_over_the_child(tmp_path: Path) -> None:
    """An error nobody thought of, here a marker that isn't text, is logged, and the watch goes on."""
    child = LiteChild(tmp_path, back_off_s=(0.05, 1.0), health_every_s=0.1)
    await child.start()
    try:
        first = _pid(child)
        marker = (tmp_path / "marker").read_bytes()
        with capture_logs() as logs:

            async def logged() -> bool:
                return any(line["event"] == "lite.defect" for line in logs)

            (tmp_path / "marker").write_bytes(b"\xff")
            await eventually(logged)
        assert _pid(child) == first, "a child that answers isn't killed for our own mistake"
        (tmp_path / "marker").write_bytes(marker)
        os.kill(first, signal.SIGKILL)
        with anyio.fail_after(60):
            await child.wait_down()
            await child.wait_ready()
        await child.health(soon())
    finally:
        await child.aclose()


async def test_a_child_dies_with_a_killed_parent_and_frees_the_folder(tmp_path: Path) -> None:
    """kill -9 of the parent leaves no process and no lock: the next start succeeds."""
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PARENT, str(tmp_path)), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    with anyio.fail_after(60):
        orphan = int(await parent.stdout.readline())
    assert psutil.pid_exists(orphan)
    parent.kill()
    with anyio.fail_after(20):
        await parent.wait()
        await _ended(orphan)
        heir = LiteChild(tmp_path)
        await heir.start()
    await heir.aclose()


@pytest.mark.soak
async def test_closing_stops_the_child_and_keeps_what_was_written(tmp_path: Path) -> None:
    """A clean stop leaves no process; the next start finds the rows, sealed or not."""
    for attempt in (1, 2):
        child = LiteChild(tmp_path)
        await child.start()
        store = MilvusStore(child.endpoint)
        if attempt == 1:
            await store.prepare(SPACE)
            await store.write(SPACE, "r1", [row()])
        else:
            assert await seen(store, query(), ["one"]) == [{"one"}] * 3
        pid = _pid(child)
        await store.aclose()
        await child.aclose()
        assert not child.ready
        with pytest.raises(VectorStoreUnavailable):
            child.endpoint()
        assert not psutil.pid_exists(pid)
