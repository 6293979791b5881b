"""Several web processes on one address: their supervisor starts, replaces and ends them, and leaves none."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import psutil
import pytest

from tests.harness.process import (
    LITE,
    GatewayProcess,
    eventually,
    gone,
    refused,
    run_command,
    spawned,
    started,
)

SUPERVISOR = (sys.executable, "-m", "tests.integration.small_supervisor")
SMALL = (sys.executable, "-m", "tests.integration.small_web")
GATEWAY = (sys.executable, "-m", "gateway", "web-process")


@dataclass(frozen=True)
class Stream:
    """An open connection, and the web process that has accepted it."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def finish(self) -> bytes:
        """Lets the process end it; the rest of what it sends."""
        self.writer.write(b"\n")
        with anyio.fail_after(30):
            return await self.reader.read()


class Address:
    """Where web processes answer."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self._port = port
        self._stack = stack

    async def stream(self) -> Stream:
        with anyio.fail_after(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            self._stack.callback(writer.close)
            return Stream(int(await reader.readline()), reader, writer)

    async def one_stream_each(self, count: int) -> dict[int, Stream]:
        """By process id. Connections go to whoever accepts first, so it takes some."""
        found: dict[int, Stream] = {}

        async def complete() -> bool:
            stream = await self.stream()
            if found.setdefault(stream.pid, stream) is not stream:
                assert await stream.finish() == b"end\n"
            return len(found) == count

        await eventually(complete)
        return found


@asynccontextmanager
async def supervised(
    folder: Path, count: int, *arguments: str
) -> AsyncIterator[tuple[GatewayProcess, Address]]:
    """``count`` small web processes that all answer."""
    async with (
        AsyncExitStack() as stack,
        started(
            *(str(count), *SMALL, "--starts", str(folder / "starts"), *arguments),
            ready_file=folder / "ready.json",
            errors=folder / "stderr.txt",
            program=SUPERVISOR,
        ) as supervisor,
    ):
        yield supervisor, Address(supervisor.port, stack)


async def failing(
    folder: Path, count: int, command: Sequence[str], env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and stderr of a supervisor whose processes can't start."""
    errors, ready_file = folder / "stderr.txt", folder / "ready.json"
    asked = (str(count), *command, "--ready-file", str(ready_file))
    async with spawned(*asked, errors=errors, env=env, program=SUPERVISOR) as process:
        with anyio.fail_after(120):
            code = await process.wait()
    assert not ready_file.exists()
    return code, errors.read_text()


async def test_all_answer_on_one_address_and_streams_outlive_a_stop(tmp_path: Path) -> None:
    """SIGTERM: nobody listens any more, open streams end whole, then everybody is gone and the exit is 0."""
    async with supervised(tmp_path, 2) as (supervisor, address):
        assert len(supervisor.log("web_process.answering")) == 2, "ready before all of them answered"
        streams = await address.one_stream_each(2)
        assert set(streams) == set(supervisor.children())
        supervisor.send(signal.SIGTERM)
        await eventually(lambda: refused(supervisor.port))
        for stream in streams.values():
            assert await stream.finish() == b"end\n"
        assert await supervisor.ended() == 0
        for pid in streams:
            await gone(pid)


async def test_a_process_that_dies_is_replaced(tmp_path: Path) -> None:
    """Also when its successor can't start at first; streams of the others notice nothing."""
    obstacle = tmp_path / "obstacle"
    async with supervised(tmp_path, 2, "--refuse-if", str(obstacle)) as (supervisor, address):
        dead, alive = (await address.one_stream_each(2)).values()
        obstacle.touch()
        psutil.Process(dead.pid).send_signal(signal.SIGKILL)
        assert await dead.reader.read() == b""

        async def refused_twice() -> bool:
            return [end["exit_code"] for end in supervisor.log("web_process.ended")][:3] == [-9, 2, 2]

        await eventually(refused_twice)
        assert (await address.stream()).pid == alive.pid
        obstacle.unlink()
        successors = await address.one_stream_each(2)
        assert alive.pid in successors
        assert dead.pid not in successors
        assert await alive.finish() == b"end\n"
        waits = [end["restart_in_s"] for end in supervisor.log("web_process.ended")]
        assert waits[:3] == [0.1, 0.2, 0.4]


@pytest.mark.soak
async def test_a_second_signal_waits_for_nobody(tmp_path: Path) -> None:
    """Open streams are cut, nothing is left, and the exit code tells that it was no orderly end."""
    async with supervised(tmp_path, 2) as (supervisor, address):
        streams = await address.one_stream_each(2)
        supervisor.send(signal.SIGINT)
        await eventually(lambda: refused(supervisor.port))
        supervisor.send(signal.SIGINT)
        assert await supervisor.ended() == 1
        for pid, stream in streams.items():
            assert await stream.reader.read() == b""
            await gone(pid)


@pytest.mark.soak
async def test_a_killed_supervisor_leaves_no_process_behind(tmp_path: Path) -> None:
    """kill -9: its processes stop as on SIGTERM, open streams end whole."""
    async with supervised(tmp_path, 2) as (supervisor, address):
        streams = await address.one_stream_each(2)
        supervisor.send(signal.SIGKILL)
        assert await supervisor.ended() == -signal.SIGKILL
        await eventually(lambda: refused(supervisor.port))
        for pid, stream in streams.items():
            assert await stream.finish() == b"end\n"
            await gone(pid)


async def test_what_is_wrong_with_all_is_said_once(tmp_path: Path) -> None:
    """The first process says why and ends with 2; no other is tried, nothing is added."""
    (tmp_path / "obstacle").touch()
    command = (*SMALL, "--starts", str(tmp_path / "starts"), "--refuse-if", str(tmp_path / "obstacle"))
    code, said = await failing(tmp_path, 3, command)
    assert (code, said) == (2, "not_today: the file is there\n")
    assert len((tmp_path / "starts").read_text().splitlines()) == 1


@pytest.mark.soak
async def test_a_process_that_keeps_dying_at_the_start_ends_the_rest(tmp_path: Path) -> None:
    """Three times without a word: exit 1, and the last line names the signal."""
    command = (*SMALL, "--starts", str(tmp_path / "starts"), "--crash")
    code, said = await failing(tmp_path, 2, command)
    assert code == 1
    assert said.splitlines()[-1].startswith("web_process_ended: a web process ended with signal 9")
    assert len((tmp_path / "starts").read_text().splitlines()) == 3


@pytest.mark.soak
async def test_the_gateway_itself_is_such_a_process(tmp_path: Path) -> None:
    """One, over embedded parts: it answers, drains on SIGTERM, and closes its parts; exit 0."""
    async with started(
        *("1", *GATEWAY),
        ready_file=tmp_path / "ready.json",
        errors=tmp_path / "stderr.txt",
        env={"GATEWAY_DATA_DIR": str(tmp_path / "data")},
        program=SUPERVISOR,
    ) as supervisor:
        assert (await supervisor.readiness())[0] == 200
        (web,) = psutil.Process(supervisor.pid).children()
        lite = [child.pid for child in web.children() if LITE in child.cmdline()]
        assert lite
        assert await supervisor.stop() == 0
        assert supervisor.log("server.stopped")
        assert "Traceback" not in supervisor.stderr


@pytest.mark.soak
async def test_the_reason_of_the_gateway_is_the_last_line(tmp_path: Path) -> None:
    """As without a supervisor: exit 2, `reason: text`."""
    env = {"GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_ENV": "production"}
    code, said = await failing(tmp_path, 1, GATEWAY, env)
    assert code == 2
    assert said.splitlines()[-1].startswith("production_needs_servers: ")
    assert "Traceback" not in said


@pytest.mark.parametrize("given", [("--workers", "2"), ()], ids=["option", "variable"])
async def test_several_processes_need_servers(given: tuple[str, ...], tmp_path: Path) -> None:
    """Exit 2 and the names of what is missing, before anything is made."""
    folder = tmp_path / "data"
    env = {"GATEWAY_DATA_DIR": str(folder), "GATEWAY_REDIS_URL": "redis://127.0.0.1:1"}
    if not given:
        env["GATEWAY_WORKERS"] = "2"
    refusal = await run_command("serve", "--port", "0", *given, env=env)
    assert refusal.code == 2
    (line,) = refusal.err.splitlines()
    assert line.startswith("workers_need_servers: ")
    assert "GATEWAY_DATABASE_URL" in line
    assert "GATEWAY_MILVUS_URI" in line
    assert "GATEWAY_REDIS_URL" not in line
    assert not folder.exists()
