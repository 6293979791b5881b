"""ChildEmbedder with real child processes: the same vectors, and nothing outlives its owner."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest
import pytest_asyncio
from anyio.streams.buffered import BufferedByteReceiveStream

from gateway.adapters.children.embedding_child import ChildEmbedder
from gateway.adapters.embedded.embedder import SPACE, BundledEmbedder
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 60
#: takes the model seconds
SLOW = ["refund policy " * 20_000] * 25


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedder() -> AsyncIterator[ChildEmbedder]:
    """One for all tests: each leaves it usable."""
    one = ChildEmbedder()
    yield one
    await one.aclose()


def soon() -> Deadline:
    return Deadline.after(WAIT_S * 1000)


def is_gone(pid: int) -> bool:
    """Ended; a zombie that an absent init hasn't collected yet counts as ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def cpu_s(pid: int | None) -> float:
    try:
        times = psutil.Process(pid or 0).cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def warm_child(embedder: ChildEmbedder) -> int:
    await embedder.embed(["Hello."], soon())
    assert embedder.pid is not None
    return embedder.pid


async def test_the_child_gives_the_very_vectors_of_the_bundled_embedder(embedder: ChildEmbedder) -> None:
    """Bit by bit, in order, for any script and for a text without words."""
    texts = ["how are refunds paid?", "", "退款多久到账 😀", "refund " * 3000, "how are refunds paid?"]
    found = await embedder.embed(texts, soon())
    assert found == await BundledEmbedder.load_now().embed(texts, soon())
    assert [len(vector) for vector in found] == [SPACE.dimension] * len(texts)
    assert embedder.space == SPACE
    assert await embedder.embed([], soon()) == []


async def test_the_event_loop_stays_free_while_the_child_works(embedder: ChildEmbedder) -> None:
    """The other tasks of this process don't notice that an import is being embedded."""
    pid = await warm_child(embedder)
    begun = cpu_s(pid)
    turns = 0

    def worked_for(seconds: float) -> bool:
        nonlocal turns
        turns += 1
        return cpu_s(pid) > begun + seconds

    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, SLOW, soon())
        await until(lambda: worked_for(0.2))
        turns = 0
        await until(lambda: worked_for(1.2))
        group.cancel_scope.cancel()
    assert turns > 100


async def test_a_cancel_ends_the_child_and_the_next_batch_gets_another(embedder: ChildEmbedder) -> None:
    """Nobody waits for the answer any more, so nobody computes it."""
    pid = await warm_child(embedder)
    begun = cpu_s(pid)
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, SLOW, soon())
        await until(lambda: cpu_s(pid) > begun + 0.5)
        group.cancel_scope.cancel()
    assert is_gone(pid)
    assert embedder.pid is None
    assert await warm_child(embedder) != pid


async def test_a_cancel_while_the_child_starts_leaves_nothing() -> None:
    """The child is known from its first moment."""
    embedder = ChildEmbedder()
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, ["Hello."], soon())
        await until(lambda: embedder.pid is not None)
        pid = embedder.pid or 0
        group.cancel_scope.cancel()
    assert is_gone(pid)


async def test_a_deadline_that_passes_ends_the_child(embedder: ChildEmbedder) -> None:
    """And is told as the embedding stage's."""
    pid = await warm_child(embedder)
    with pytest.raises(DeadlineExceeded) as caught:
        await embedder.embed(SLOW, Deadline.after(300))
    assert caught.value.stage == "embedding"
    assert is_gone(pid)


async def test_a_deadline_that_has_passed_starts_no_child() -> None:
    """Also for no texts at all: the stage has no time left."""
    embedder = ChildEmbedder()
    for texts in (["Hello."], []):
        with pytest.raises(DeadlineExceeded):
            await embedder.embed(texts, Deadline.after(0))
    assert embedder.pid is None


async def test_waiting_for_another_batch_counts_into_the_deadline(embedder: ChildEmbedder) -> None:
    """Who waits and gives up leaves the batch that works alone."""
    pid = await warm_child(embedder)
    begun = cpu_s(pid)
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, SLOW, soon())
        await until(lambda: cpu_s(pid) > begun + 0.2)
        with pytest.raises(DeadlineExceeded):
            await embedder.embed(["Hello."], Deadline.after(50))
        assert not is_gone(pid)
        group.cancel_scope.cancel()


@pytest.mark.soak
async def test_a_child_that_dies_at_work_is_unavailable_and_replaced(embedder: ChildEmbedder) -> None:
    """The batch fails with EmbedderUnavailable, which an import tries again; the next one works."""
    pid = await warm_child(embedder)
    begun = cpu_s(pid)
    caught: list[EmbedderUnavailable] = []

    async def embed() -> None:
        try:
            await embedder.embed(SLOW, soon())
        except EmbedderUnavailable as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(embed)
        await until(lambda: cpu_s(pid) > begun + 0.5)
        os.kill(pid, signal.SIGKILL)
    assert len(caught) == 1
    assert await warm_child(embedder) != pid


async def test_a_defect_in_the_child_is_unavailable_and_the_child_replaced(embedder: ChildEmbedder) -> None:
    """Here: something that isn't text, which the tokenizer refuses."""
    pid = await warm_child(embedder)
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed([3], soon())  # type: ignore[list-item]  # the defect
    assert is_gone(pid)
    assert await warm_child(embedder) != pid


async def test_batches_at_the_same_time_share_one_child(embedder: ChildEmbedder) -> None:
    """They wait for each other and each gets its own vectors."""
    texts = [f"refund number {n}" for n in range(8)]
    expected = await embedder.embed(texts, soon())
    found: dict[int, object] = {}
    pids = set()

    async def embed(n: int) -> None:
        (found[n],) = await embedder.embed([texts[n]], soon())
        pids.add(embedder.pid)

    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(embed, n)
    assert [found[n] for n in range(8)] == expected
    assert len(pids) == 1


async def test_closing_ends_a_child_at_work_for_good() -> None:
    """Its batch and every later one are told that there is no embedder."""
    embedder = ChildEmbedder()
    pid = await warm_child(embedder)
    begun = cpu_s(pid)
    caught: list[EmbedderUnavailable] = []

    async def embed() -> None:
        try:
            await embedder.embed(SLOW, soon())
        except EmbedderUnavailable as error:
            caught.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(embed)
        await until(lambda: cpu_s(pid) > begun + 0.2)
        await embedder.aclose()
    assert is_gone(pid)
    assert len(caught) == 1
    with pytest.raises(EmbedderUnavailable):
        await embedder.embed(["Hello."], soon())


@pytest.mark.skipif(sys.platform != "linux", reason="limits and environments are read from /proc")
async def test_the_child_is_bounded_and_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limited memory, a low priority, one thread a library, and none of the gateway's settings."""
    monkeypatch.setenv("GATEWAY_MODEL_API_KEY", "sk-secret")
    embedder = ChildEmbedder()
    try:
        child = psutil.Process(await warm_child(embedder))
        assert child.rlimit(psutil.RLIMIT_AS)[0] == 2 * 1024**3
        assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert child.nice() == min(19, os.nice(0) + 10)
        assert child.environ()["RAYON_NUM_THREADS"] == "1"
        assert not any(name.startswith("GATEWAY_") for name in child.environ())
        assert os.getsid(child.pid) != os.getsid(0)
    finally:
        await embedder.aclose()


PARENT = """
import anyio
from gateway.adapters.children.embedding_child import ChildEmbedder
from gateway.context import Deadline

async def main():
    embedder = ChildEmbedder()
    await embedder.embed(["Hello."], Deadline.after(60000))
    print(embedder.pid, flush=True)
    await embedder.embed(["refund policy " * 20_000] * 100, Deadline.after(60000))

anyio.run(main)
"""


@pytest.mark.soak
async def test_a_killed_parent_takes_its_busy_child_along(tmp_path: Path) -> None:
    """kill -9 in the middle of a batch ends the child too."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    async with await anyio.open_process([sys.executable, str(script)], env=environment) as parent:
        assert parent.stdout is not None
        output = BufferedByteReceiveStream(parent.stdout)
        with anyio.fail_after(WAIT_S):
            pid = int(await output.receive_until(b"\n", 100))
        begun = cpu_s(pid)
        await until(lambda: cpu_s(pid) > begun + 0.3)
        assert parent.returncode is None
        parent.kill()
    with anyio.fail_after(10):  # the batch itself would take much longer
        await until(lambda: is_gone(pid))
