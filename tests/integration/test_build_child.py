"""ChildParser with real child processes: results and rejections come back, nothing outlives its owner."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from gateway.adapters.children.build_child import ChildParser
from gateway.errors import DocumentRejected, Unavailable
from gateway.ingest.building import build_document

WAIT_S = 60
#: takes the HTML library seconds, most of them inside one call into C
SLOW = b"<div>" * 40_000 + b"deep"


@pytest.fixture
async def parser() -> AsyncIterator[ChildParser]:
    child = ChildParser(cap_s=60, max_bytes=20_000_000)
    yield child
    await child.aclose()


def is_gone(pid: int) -> bool:
    """Ended; a zombie that an absent init hasn't collected yet counts as ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def busy_child(parser: ChildParser, *, other_than: int | None = None) -> int:
    """The process id of the child once it has worked on a slow document for a while."""
    await until(lambda: parser.pid not in (None, other_than) and cpu_s(parser.pid or 0) > 1.5)
    assert parser.pid is not None
    return parser.pid


async def warm_child(parser: ChildParser) -> int:
    await parser.build("a.md", "", b"Hello.")
    assert parser.pid is not None
    return parser.pid


async def test_the_child_builds_what_this_process_would_build(parser: ChildParser) -> None:
    """Title, versions and passages are the same, for names and contents in any script."""
    content = ("# 说明\n\n" + "第一条规定。" * 5_000 + "\n\n```sh\n# no\n```\n").encode()
    with anyio.fail_after(WAIT_S):
        built = await parser.build("目录/说明 😀.md", "text/markdown", content)
    assert built == build_document("目录/说明 😀.md", "text/markdown", content)
    assert len(built.passages) > 50


async def test_a_rejection_comes_back_with_its_reason_and_detail(parser: ChildParser) -> None:
    """And the child lives on for the next document."""
    pid = await warm_child(parser)
    for source, content, reason in (
        ("a.md", b"\x89PNG\r\n", "not_text"),
        ("a.md", b" \n ", "blank"),
        ("a.pdf", b"%PDF-1.7", "corrupt"),
        ("a.txt", "Zażółć gęślą jaźń".encode("cp1250"), "undecodable"),
    ):
        with pytest.raises(DocumentRejected) as here:
            build_document(source, "", content)
        with pytest.raises(DocumentRejected) as caught:
            await parser.build(source, "", content)
        assert (caught.value.reason, caught.value.detail) == (reason, here.value.detail)
    assert parser.pid == pid


async def test_a_file_beyond_the_limit_never_reaches_a_child() -> None:
    """The size is checked before anything is started."""
    parser = ChildParser(cap_s=5, max_bytes=10)
    with pytest.raises(DocumentRejected) as caught:
        await parser.build("a.md", "", b"x" * 11)
    assert caught.value.reason == "too_large"
    assert parser.pid is None


async def test_a_document_that_takes_too_long_is_rejected_and_its_child_ends() -> None:
    """The cap kills a child that is stuck inside a C library; the next document gets a new one."""
    parser = ChildParser(cap_s=0.5, max_bytes=20_000_000)
    try:
        pid = await warm_child(parser)
        with anyio.fail_after(WAIT_S), pytest.raises(DocumentRejected) as caught:
            await parser.build("a.html", "", SLOW)
        assert caught.value.reason == "too_complex"
        assert "0.5 seconds" in caught.value.detail
        assert is_gone(pid)
        assert await warm_child(parser) != pid
    finally:
        await parser.aclose()


async def test_a_cancel_ends_the_child(parser: ChildParser) -> None:
    """Nobody waits for the answer any more, so nobody computes it."""
    async with anyio.create_task_group() as group:
        group.start_soon(parser.build, "a.html", "", SLOW)
        pid = await busy_child(parser)
        group.cancel_scope.cancel()
    assert is_gone(pid)
    assert parser.pid is None


async def test_a_cancel_while_the_child_starts_leaves_nothing(parser: ChildParser) -> None:
    """The child is known from its first moment."""
    async with anyio.create_task_group() as group:
        group.start_soon(parser.build, "a.md", "", b"Hello.")
        await until(lambda: parser.pid is not None)
        pid = parser.pid or 0
        group.cancel_scope.cancel()
    assert is_gone(pid)


async def test_an_idle_child_that_was_killed_is_replaced(parser: ChildParser) -> None:
    """Somebody else's kill is no document's fault."""
    pid = await warm_child(parser)
    os.kill(pid, signal.SIGKILL)
    assert await warm_child(parser) != pid


async def test_a_document_that_kills_a_fresh_child_is_rejected(parser: ChildParser) -> None:
    """A reused child is replaced once; when the fresh one dies as well, the document is to blame."""
    first = await warm_child(parser)
    caught: list[DocumentRejected] = []

    async def build() -> None:
        try:
            await parser.build("a.html", "", SLOW)
        except DocumentRejected as rejected:
            caught.append(rejected)

    async with anyio.create_task_group() as group:
        group.start_soon(build)
        await until(lambda: cpu_s(first) > 1)
        os.kill(first, signal.SIGKILL)
        os.kill(await busy_child(parser, other_than=first), signal.SIGKILL)
    assert [rejected.reason for rejected in caught] == ["too_complex"]


async def test_closing_ends_a_child_at_work(parser: ChildParser) -> None:
    """Its build says that the reader is closed, and so does the next one."""
    unavailable: list[Unavailable] = []

    async def build() -> None:
        try:
            await parser.build("a.html", "", SLOW)
        except Unavailable as error:
            unavailable.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(build)
        pid = await busy_child(parser)
        await parser.aclose()
    assert is_gone(pid)
    assert len(unavailable) == 1
    with pytest.raises(Unavailable):
        await parser.build("a.md", "", b"Hello.")


async def test_builds_at_the_same_time_share_one_child(parser: ChildParser) -> None:
    """They wait for each other and each gets its own answer."""
    titles: dict[str, str] = {}
    pids: set[int | None] = set()

    async def build(name: str) -> None:
        titles[name] = (await parser.build(f"{name}.md", "", f"# Title {name}\n\nText.".encode())).title
        pids.add(parser.pid)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as group:
            for n in range(8):
                group.start_soon(build, str(n))
    assert titles == {str(n): f"Title {n}" for n in range(8)}
    assert len(pids) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="limits and environments are read from /proc")
async def test_the_child_is_bounded_and_knows_no_secret(
    parser: ChildParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has memory and CPU limits, no core dumps, and an environment without the gateway's settings."""
    monkeypatch.setenv("GATEWAY_MODEL_API_KEY", "sk-secret")
    child = psutil.Process(await warm_child(parser))
    assert child.rlimit(psutil.RLIMIT_AS)[0] == 1024**3
    assert child.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert 60 < child.rlimit(psutil.RLIMIT_CPU)[0] < 120
    assert not any(name.startswith("GATEWAY_") for name in child.environ())
    assert os.getsid(child.pid) != os.getsid(0)


PARENT = """
import anyio
from gateway.adapters.children.build_child import ChildParser

print("main", flush=True)
SLOW = b"<div>" * 40_000 + b"deep"

async def main():
    parser = ChildParser(cap_s=60, max_bytes=20_000_000)
    await parser.build("a.md", "", b"Hello.")
    print(parser.pid, flush=True)
    await parser.build("a.html", "", SLOW)

anyio.run(main)
"""


async def test_a_killed_parent_takes_its_busy_child_along(tmp_path: Path) -> None:
    """kill -9 in the middle of a document ends the child too; the parent's main module ran only once."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    async with await anyio.open_process([sys.executable, str(script)], env=environment) as parent:
        assert parent.stdout is not None
        output = BufferedByteReceiveStream(parent.stdout)
        with anyio.fail_after(WAIT_S):
            assert await output.receive_until(b"\n", 100) == b"main"
            pid = int(await output.receive_until(b"\n", 100))
        await until(lambda: cpu_s(pid) > 1)
        assert parent.returncode is None
        parent.kill()
        with anyio.fail_after(WAIT_S), pytest.raises(anyio.EndOfStream):
            await output.receive()
    await until(lambda: is_gone(pid))


@pytest.mark.parametrize("run", ["[", "![", "]("])
async def test_a_page_of_open_brackets_is_read_within_the_limits(run: str) -> None:
    """They took the Markdown reader longer than a child has for a document; the words among them are kept."""
    child = ChildParser(cap_s=12, max_bytes=20_000_000)
    try:
        text = run * (200_000 // len(run)) + " words"
        built = await child.build("a.md", "text/markdown", text.encode())
        assert "words" in built.passages[-1].content
    finally:
        await child.aclose()
