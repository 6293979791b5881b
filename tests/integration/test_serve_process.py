"""The `qa-gateway` process: when it starts, why it refuses to, and what is left when it has ended."""

import asyncio
import json
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
import pytest_asyncio
import uvicorn

from gateway.processes.web import GatewayServer
from loadtest.model_stub import serve_stub
from tests.harness.process import (
    LITE,
    PARSER,
    GatewayProcess,
    eventually,
    gateway_process,
    gone,
    refused,
    run_command,
    spawned,
    started,
)
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected, request
from tests.harness.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = {"limits.md": "# Limits\n\nThe upload limit is 42 megabytes for every member of staff.\n"}
QUESTION = "What is the upload limit?"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    """One that serves while others try to start beside it."""
    async with gateway_process(tmp_path_factory.mktemp("serve")) as one:
        yield one
        assert await one.stop() == 0


@pytest.mark.soak
async def test_the_ready_file_appears_once_it_answers(tmp_path: Path) -> None:
    """The first look after the file is there finds a server; SIGINT ends all of it, with exit code 0."""
    async with gateway_process(tmp_path) as gateway:
        assert (await gateway.call("GET", "/healthz")).status_code == 200
        assert (await gateway.readiness())[0] == 200
        assert dict(gateway.ready) == {
            "base_url": gateway.base_url,
            "data_dir": str((tmp_path / "data").resolve()),
        }
        assert stat.S_IMODE((tmp_path / "ready.json").stat().st_mode) == 0o600
        await gateway.learn(TEXT)
        assert {gateway.child(LITE), gateway.child(PARSER)} <= set(gateway.children())
        assert await gateway.stop(signal.SIGINT) == 0
        assert "Traceback" not in gateway.stderr


async def test_a_stop_lets_answers_end_and_begins_no_other(tmp_path: Path) -> None:
    """SIGTERM: one answer finishes, one is cut, two aren't begun; all hear of it, and nothing is left."""
    async with serve_stub() as stub:
        env = {
            "GATEWAY_MODEL_BASE_URL": stub.base_url,
            "GATEWAY_IDLE_CAP_MS": "60000",
            "GATEWAY_TOTAL_CAP_MS": "60000",
            "GATEWAY_DRAIN_S": "4",
        }
        async with gateway_process(tmp_path, env=env) as gateway:
            await gateway.learn(TEXT)
            tree = gateway.children()
            with anyio.fail_after(60):
                async with (
                    connected(gateway.port) as patient,
                    connected(gateway.port) as endless,
                    connected(gateway.port) as slow,
                    connected(gateway.port) as late,
                ):
                    stub.script(tokens=["42 ", "megabytes."], gate_after_tokens=1)
                    await patient.ask(gateway.token(), QUESTION)
                    await stub.until(lambda s: sum(call.tokens for call in s.calls) == 1)
                    stub.script(tokens=["42 ", "megabytes."], stall_after_tokens=1)
                    await endless.ask(gateway.token(), QUESTION)
                    await stub.until(lambda s: sum(call.tokens for call in s.calls) == 2)
                    await slow.ask(gateway.token(), QUESTION, hold_back=1)
                    token = gateway.token()
                    gateway.send(signal.SIGTERM)
                    await eventually(lambda: refused(gateway.port))
                    assert await turned_away(late, token)
                    stub.open_gate()
                    events = await patient.all_events()
                    assert [event.name for event in events][-1] == "done"
                    events = await endless.all_events()
                    assert [event.name for event in events] == ["meta", "delta", "error"]
                    assert events[-1].data["code"] == "shutting_down"
                    assert events[-1].data["partial"] is True
                    head = await slow.read_head()
                    assert head.status == 503
                    assert (await slow.json())["code"] == "shutting_down"
                assert await gateway.ended() == 0
            for pid in tree:
                await gone(pid)
            assert len(stub.calls) == 2


async def test_the_first_sign_to_stop_turns_new_questions_away() -> None:
    """At once, before any listener is closed: 503 `shutting_down`, unready, no model call."""
    world = World()
    await world.learn(TEXT)
    server = GatewayServer(
        uvicorn.Config(lambda: None, log_config=None), world.registry, 60.0, lambda *_: None
    )
    async with serving_world(world) as port:
        server.handle_exit(signal.SIGTERM, None)
        assert server.stop() is False
        async with connected(port) as wire:
            assert await turned_away(wire, world.token())
            assert wire.head is not None, "a word, not a closed connection"
        head, body = await request(port, "GET", "/readyz")
        assert (head.status, json.loads(body)["parts"]["accepting"]) == (503, False)
    assert world.model.called == 0


async def turned_away(wire: Wire, token: str) -> bool:
    """Whether a question on a connection from before the stop is refused, or finds it closed."""
    try:
        await wire.ask(token, QUESTION)
        head = await wire.read_head()
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    return head.status == 503 and (await wire.json())["code"] == "shutting_down"


async def test_a_killed_server_leaves_no_child_and_an_intact_folder(tmp_path: Path) -> None:
    """kill -9 with both children alive: they end too, and the next start on the folder answers."""
    async with gateway_process(tmp_path) as gateway:
        await gateway.learn(TEXT)
        children = [gateway.child(LITE), gateway.child(PARSER)]
        gateway.send(signal.SIGKILL)
        assert await gateway.ended() == -signal.SIGKILL
        for pid in children:
            await gone(pid)
    async with gateway_process(tmp_path) as heir:
        status, events, _ = await heir.ask(QUESTION)
        assert (status, events[-1].name) == (200, "done")
        assert events[-1].data["status"] == "ANSWERED"
        assert await heir.stop() == 0


@pytest.mark.soak
async def test_a_second_process_on_the_folder_is_refused(gateway: GatewayProcess) -> None:
    """Exit 2 and `data_dir_in_use` in one line; the first one goes on."""
    second = await run_command("serve", "--port", "0", "--data-dir", str(gateway.data_dir))
    assert second.code == 2
    assert "data_dir_in_use: " in second.err.splitlines()[-1]
    assert "Traceback" not in second.err
    assert (await gateway.readiness())[0] == 200


@pytest.mark.soak
async def test_a_taken_port_is_the_first_thing_said(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Exit 2, the address in the message, and nothing was made in the data folder."""
    folder = tmp_path / "data"
    refusal = await run_command("serve", "--port", str(gateway.port), "--data-dir", str(folder))
    assert refusal.code == 2
    assert refusal.err.startswith("address_unusable: ")
    assert f"127.0.0.1:{gateway.port}" in refusal.err
    assert len(refusal.err.splitlines()) == 1
    assert not folder.exists()


@pytest.mark.soak
async def test_a_reader_that_stops_loses_its_connection(tmp_path: Path) -> None:
    """The server's own socket is closed, though the client neither reads nor leaves."""
    async with serve_stub() as stub:
        # six bytes each on the wire, or an answer within its tokens would fit into the system's buffers
        stub.script(tokens=["\x01" * 4096] * 600)
        env = {
            "GATEWAY_MODEL_BASE_URL": stub.base_url,
            "GATEWAY_SEND_TIMEOUT_S": "0.5",
            "GATEWAY_MODEL_CONTEXT_TOKENS": "65536",
            "GATEWAY_MAX_OUTPUT_TOKENS": "32768",
        }
        async with gateway_process(tmp_path, env=env) as gateway:
            await gateway.learn(TEXT)
            process = psutil.Process(gateway.pid)
            async with connected(gateway.port, receive_buffer=4096) as wire:
                await wire.ask(gateway.token(), QUESTION)
                await stub.until(lambda s: sum(call.tokens for call in s.calls) > 0)

                async def dropped() -> bool:
                    return not [
                        one
                        for one in process.net_connections()
                        if one.laddr.port == gateway.port and one.status != psutil.CONN_LISTEN
                    ]

                await eventually(dropped, within_s=20)

            async def told() -> list[dict[str, Any]]:
                return gateway.log("answer.ended")

            assert (await eventually(told))[-1]["close_reason"] == "slow_reader"
            assert await gateway.stop() == 0
            assert "Traceback" not in gateway.stderr


@pytest.mark.soak
async def test_an_ipv6_address_is_told_as_a_url(tmp_path: Path) -> None:
    """The brackets belong to it: what the ready file says can be called."""
    async with gateway_process(tmp_path, arguments=("--host", "::1")) as gateway:
        assert gateway.base_url == f"http://[::1]:{gateway.port}"
        assert (await gateway.call("GET", "/healthz")).status_code == 200
        assert await gateway.stop() == 0


REFUSALS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "production": (("serve", "--port", "0"), {"GATEWAY_ENV": "production"}, "production_needs_servers: "),
    "no_number": (("serve",), {"GATEWAY_PORT": "x"}, "GATEWAY_PORT: "),
    "no_cap": (("serve",), {"GATEWAY_IDLE_CAP_MS": "0"}, "GATEWAY_IDLE_CAP_MS: "),
    "no_url": (
        ("serve", "--port", "0"),
        {"GATEWAY_MODEL_BASE_URL": "ftp://models.example"},
        "model_base_url_invalid: ",
    ),
    "bad_key": (
        ("serve", "--port", "0"),
        {"GATEWAY_MODEL_BASE_URL": "http://127.0.0.1:9", "GATEWAY_MODEL_API_KEY": "two\nlines"},
        "model_api_key_invalid: ",
    ),
    "worker": (("worker",), {}, "worker_needs_postgresql: "),
}


@pytest.mark.parametrize(
    ("command", "env", "reason"),
    [
        pytest.param(*refusal, id=name, marks=[pytest.mark.soak] if name in {"no_url", "bad_key"} else [])
        for name, refusal in REFUSALS.items()
    ],
)
async def test_it_refuses_to_start_with_a_reason(
    command: tuple[str, ...], env: dict[str, str], reason: str, tmp_path: Path
) -> None:
    """Exit 2; the last line on stderr begins with the reason; no traceback, no secret."""
    folder = tmp_path / "data"
    refusal = await run_command(*command, env={"GATEWAY_DATA_DIR": str(folder), **env})
    assert refusal.code == 2
    assert refusal.err.splitlines()[-1].startswith(reason)
    assert "Traceback" not in refusal.err
    assert "lines" not in refusal.err
    assert refusal.out == ""


@pytest.mark.soak
async def test_a_token_is_signed_beside_a_running_server(gateway: GatewayProcess) -> None:
    """The catalog is the server's alone: the command reads the key file, and the server takes its token."""
    signed = await run_command(
        *("token", "--tenant", "acme", "--subject", "ann", "--group", "staff", "--scope", "ask,ingest"),
        *("--ttl", "30m", "--data-dir", str(gateway.data_dir)),
    )
    assert signed.code == 0
    assert signed.err == ""
    head, _ = await request(
        gateway.port, "GET", "/v1/documents?knowledge_base=none", token=signed.out.strip()
    )
    assert head.status == 200


async def test_a_token_makes_nothing_but_the_key(tmp_path: Path) -> None:
    """Before the first start the folder holds the signing key, for its owner's eyes only."""
    folder = tmp_path / "data"
    made = await run_command(
        *("token", "--tenant", "acme", "--subject", "ann", "--scope", "ask", "--data-dir", str(folder))
    )
    assert made.code == 0
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path.relative_to(folder).as_posix() for path in files] == ["keys/es256.json"]
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o600


@pytest.mark.soak
@pytest.mark.soak
async def test_the_end_of_a_demo_deletes_its_folder(tmp_path: Path) -> None:
    """Ctrl-C on a demo that is ready: exit 0, no process and no file of it is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    async with started(
        *("demo", "--port", "0"),
        ready_file=tmp_path / "ready.json",
        errors=tmp_path / "stderr.txt",
        env={"TMPDIR": str(temporary)},
    ) as demo:
        assert demo.data_dir.is_relative_to(temporary)
        assert (demo.data_dir / "catalog.db").exists()
        assert await demo.stop(signal.SIGINT) == 0
        assert not demo.data_dir.exists()
        assert "Traceback" not in demo.stderr


@pytest.mark.soak
async def test_a_demo_can_be_stopped_while_it_imports(tmp_path: Path) -> None:
    """Ctrl-C before it is ready is no failure of the samples: exit 0, and no folder is left."""
    temporary, errors = tmp_path / "tmp", tmp_path / "stderr.txt"
    temporary.mkdir()

    async def importing() -> bool:
        return "Importing" in errors.read_text()

    errors.touch()
    env = {"TMPDIR": str(temporary)}
    async with spawned("demo", "--port", "0", errors=errors, env=env) as process:
        await eventually(importing)
        tree = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        with anyio.fail_after(60):
            assert await process.wait() == 0
        for pid in tree:
            await gone(pid)
    assert not list(temporary.glob("qa-gateway-demo-*"))
    assert "demo_failed" not in errors.read_text()
    assert "Traceback" not in errors.read_text()
