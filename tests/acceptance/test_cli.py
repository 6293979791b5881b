"""The command line against a real server: what people read, what scripts read, and the exit codes.

What a command makes of the gateway's knowledge is asked of both sides; what it makes of its own mistakes, of
refusals and of broken answers doesn't depend on the parts behind the server, so one side is enough.
"""

import asyncio
import contextlib
import json
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio

from loadtest.model_stub import ModelStub, serve_stub
from tests.harness.process import (
    Finished,
    GatewayProcess,
    gateway_process,
    run_command,
    run_commands,
    spawned,
)
from tests.harness.sides import SIDES, Side

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = {
    "limits.md": "# Limits\n\n## Uploads\n\nThe upload limit is 42 megabytes for every member of staff.\n"
}
QUESTION = "What is the upload limit?"
#: other tests make more knowledge bases
HANDBOOK = ("--kb", "handbook")
UNANSWERABLE = "Who composed the opera about the lighthouse keeper?"
DONE, FAILED, WRONG_USAGE, REFUSED = 0, 1, 2, 3
PATIENCE_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub() -> AsyncIterator[ModelStub]:
    async with serve_stub() as one:
        yield one


@contextlib.asynccontextmanager
async def gateway_on(side: Side, stub: ModelStub, folder: Path) -> AsyncIterator[GatewayProcess]:
    env = {"GATEWAY_MODEL_BASE_URL": stub.base_url, "GATEWAY_IDLE_CAP_MS": "60000"}
    async with gateway_process(folder, side=side, env=env) as one:
        await one.learn(TEXT)
        yield one
        assert await one.stop() == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def embedded_gateway(
    embedded: Side, stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    async with gateway_on(embedded, stub, tmp_path_factory.mktemp("cli")) as one:
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers_gateway(
    servers: Side, stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GatewayProcess]:
    async with gateway_on(servers, stub, tmp_path_factory.mktemp("cli")) as one:
        yield one


@pytest.fixture(scope="module", params=SIDES)
def gateway(request: pytest.FixtureRequest) -> GatewayProcess:
    """One on each side."""
    found: GatewayProcess = request.getfixturevalue(f"{request.param}_gateway")
    return found


def told(gateway: GatewayProcess, *scopes: str, **who: str) -> dict[str, str]:
    """The environment of somebody who talks to this server, with a token of these scopes."""
    return {"GATEWAY_URL": gateway.base_url, "GATEWAY_TOKEN": gateway.token(*scopes, **who), "COLUMNS": "200"}


async def test_an_answer_streams_and_names_its_sources(gateway: GatewayProcess, stub: ModelStub) -> None:
    """Exit 0; text and citations on stdout, nothing else anywhere."""
    # pieces that end in a space, and what rich would take for its own
    reply = ["The upload ", "limit is ", "[bold]42[/bold] :bug: ", "\x1b[2Jmega", "bytes [1]."]
    stub.script(tokens=reply, cadence_ms=60)
    asked = await run_command("ask", QUESTION, env=told(gateway))
    assert (asked.code, asked.err) == (DONE, "")
    answer, _, sources = asked.out.partition("\n")
    assert answer == "The upload limit is [bold]42[/bold] :bug: [2Jmegabytes [1]."
    assert sources.strip() == "[1] Limits > Uploads (limits.md, version 1)"


@pytest.mark.soak
async def test_events_come_one_a_line(gateway: GatewayProcess, stub: ModelStub) -> None:
    """`--json`: the events of the wire, in their order, Chinese as it is."""
    stub.script(reply="上限是 42 megabytes [1].")
    command = ("ask", QUESTION, "--kb", "handbook", "--url", gateway.base_url, "--token", gateway.token())
    asked = await run_command(*command, "--json")
    assert (asked.code, asked.err) == (DONE, "")
    events = asked.lines
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["event"], events[-1]["event"]) == ("meta", "done")
    assert events[0]["knowledge_base"] == "handbook"
    assert "".join(e["text"] for e in events if e["event"] == "delta") == "上限是 42 megabytes [1]."
    assert "上" in asked.out  # a reply may break anywhere, its characters aren't escaped


async def test_a_refusal_has_an_exit_code_of_its_own(embedded_gateway: GatewayProcess) -> None:
    """Exit 3; the reasons on stderr, no text on stdout; with `--json` the events on stdout."""
    env = told(embedded_gateway)
    spoken, written = await asyncio.gather(
        run_command("ask", UNANSWERABLE, *HANDBOOK, env=env),
        run_command("ask", UNANSWERABLE, *HANDBOOK, "--json", env=env),
    )
    assert (spoken.code, written.code) == (REFUSED, REFUSED)
    assert spoken.out == ""
    assert spoken.err.startswith("No answer: ")
    assert [event["event"] for event in written.lines] == ["meta", "done"]
    assert all(reason in spoken.err for reason in written.lines[-1]["reasons"])


async def test_an_answer_that_breaks_off_is_a_failure(
    embedded_gateway: GatewayProcess, stub: ModelStub
) -> None:
    """Exit 1 and the code on stderr; what came stays on stdout."""
    stub.script(tokens=["The limit ", "is "], die_after_tokens=2, die_how="eof")
    asked = await run_command("ask", QUESTION, *HANDBOOK, env=told(embedded_gateway))
    assert (asked.code, asked.out.rstrip()) == (FAILED, "The limit is")
    assert asked.err.strip().startswith("upstream_failed: ")


META = b'event: meta\nid: 1\ndata: {"n": 1}\n\nevent: delta\nid: 2\ndata: {"text": "half"}\n\n'
CUTS: dict[str, bytes] = {
    "in_a_chunk": b"%x\r\n%b\r\n40\r\nhalf a ch" % (len(META), META),
    "between_events": b"%x\r\n%b\r\n0\r\n\r\n" % (len(META), META),
}


@pytest.mark.parametrize("body", CUTS.values(), ids=CUTS)
async def test_an_answer_without_an_end_is_never_complete(body: bytes) -> None:
    """The connection ends before the last event: exit 1, and it says so."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with answering(head + body) as url:
        asked = await run_command("ask", QUESTION, env={"GATEWAY_URL": url, "GATEWAY_TOKEN": "x"})
    assert (asked.code, asked.out) == (FAILED, "half")
    assert len(asked.err.strip().splitlines()) == 1
    assert "Traceback" not in asked.err


CACHED = (
    b'event: meta\nid: 1\ndata: {"cached": true}\n\nevent: delta\nid: 2\ndata: {"text": "42 MB"}\n\n'
    b'event: done\nid: 3\ndata: {"status": "ANSWERED", "citations": [], "cached": true}\n\n'
)


async def test_an_answer_that_was_kept_says_so() -> None:
    """On stderr, for people; with `--json` the events say it."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(CACHED)
    async with answering(head + CACHED) as url:
        env = {"GATEWAY_URL": url, "GATEWAY_TOKEN": "x"}
        spoken, written = await asyncio.gather(
            run_command("ask", QUESTION, env=env), run_command("ask", QUESTION, "--fresh", "--json", env=env)
        )
    assert (spoken.code, spoken.out.strip()) == (DONE, "42 MB")
    assert spoken.err == "From the cache; --fresh has it answered anew.\n"
    assert (written.code, written.err) == (DONE, "")
    assert [event.get("cached") for event in written.lines] == [True, None, True]


@contextlib.asynccontextmanager
async def answering(content: bytes) -> AsyncIterator[str]:
    """The address of somebody who says the same to everyone and hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if length:  # who hangs up on a body that is under way resets the connection
            await reader.readexactly(int(length[1]))
        writer.write(content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_ctrl_c_stops_the_answer_and_the_model(
    embedded_gateway: GatewayProcess, stub: ModelStub, tmp_path: Path
) -> None:
    """Exit 1 without a traceback; the model's call is closed."""
    stub.script(tokens=["The limit ", "is "], stall_after_tokens=1)
    begun = len(stub.calls)
    errors = tmp_path / "stderr.txt"
    async with spawned("ask", QUESTION, *HANDBOOK, errors=errors, env=told(embedded_gateway)) as process:
        with anyio.fail_after(PATIENCE_S):
            await stub.until(lambda s: len(s.calls) > begun and s.calls[begun].tokens == 1)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == FAILED
            await stub.until(lambda s: s.calls[begun].closed_at is not None)
    assert stub.calls[begun].reason == "client_gone"
    assert "Traceback" not in errors.read_text()


async def test_passages_come_as_a_table_and_as_lines(gateway: GatewayProcess) -> None:
    """`search`: the same passages for people and for programs, and on stderr how they were found; exit 0."""
    env = told(gateway)
    command = ("search", "upload limit", "--kb", "handbook", "--top-k", "3")
    table, lines = await asyncio.gather(
        run_command(*command, env=env), run_command(*command, "--json", env=env)
    )
    assert (table.code, lines.code) == (DONE, DONE)
    (found,) = lines.lines
    assert (found["uri"], found["section"]) == ("limits.md", "Uploads")
    assert "42 megabytes" in found["content"]
    assert "limits.md" in table.out
    assert f"{found['score']:.3f}" in table.out
    assert found["score_label"] in table.out.splitlines()[0]
    for notes in (table.err, lines.err):
        assert "relevance: sufficient, served by sdk (an embedded store has no other path)" in notes
        assert "trace: " in notes


PROBLEMS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    # name -> (command, scopes of the token, code)
    "scope": (("releases", "list", "--kb", "handbook"), ("ask",), "scope_missing"),
    "unknown": (("search", "x", "--kb", "nowhere"), ("ask",), "knowledge_base_not_found"),
    "mode": (("search", "x", "--kb", "handbook", "--mode", "fast"), ("ask",), "invalid_field"),
    "release": (("releases", "activate", "rel_none", "--kb", "handbook"), ("release",), "not_found"),
}


@pytest.mark.parametrize(("command", "scopes", "code"), PROBLEMS.values(), ids=PROBLEMS)
async def test_what_the_server_refuses_is_one_line(
    embedded_gateway: GatewayProcess, command: tuple[str, ...], scopes: tuple[str, ...], code: str
) -> None:
    """Exit 1; the server's code first, nothing on stdout."""
    refused = await run_command(*command, env=told(embedded_gateway, *scopes))
    assert (refused.code, refused.out) == (FAILED, "")
    assert refused.err.startswith(f"{code}: ")
    assert len(refused.err.splitlines()) == 1


async def test_a_token_that_is_none_is_one_line(embedded_gateway: GatewayProcess) -> None:
    """Exit 1, `token_invalid`, and the token isn't repeated."""
    refused = await run_command("ask", "x", env=told(embedded_gateway) | {"GATEWAY_TOKEN": "none-of-yours"})
    assert (refused.code, refused.out) == (FAILED, "")
    assert refused.err.startswith("token_invalid: ")
    assert "none-of-yours" not in refused.err


@pytest.fixture
def nowhere() -> str:
    """An address on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.soak
async def test_a_server_that_is_not_there_is_one_line(nowhere: str, tmp_path: Path) -> None:
    """Every command that is a client: exit 1, one line on stderr, no traceback."""
    (tmp_path / "a.md").write_text("# A\n\nText.\n")
    commands = (
        ("ask", "x"),
        ("search", "x", "--kb", "k"),
        ("import", str(tmp_path / "a.md"), "--kb", "k", "--allow", "public"),
        ("releases", "list", "--kb", "k"),
        ("revoke", "user", "ann", "--reason", "left"),
    )
    for command in commands:
        failed = await run_command(*command, env={"GATEWAY_URL": nowhere, "GATEWAY_TOKEN": "x"})
        assert (failed.code, failed.out) == (FAILED, ""), command
        said = [line for line in failed.err.splitlines() if "importing" not in line and line.strip()]
        assert said == [f"server_unreachable: {nowhere} does not answer"], command


@pytest.mark.soak
async def test_somebody_else_at_the_address_is_one_line() -> None:
    """A page instead of JSON, with any status: exit 1, one line, no traceback."""
    for status in (b"200 OK", b"404 Not Found", b"502 Bad Gateway"):
        page = b"HTTP/1.1 %b\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<p/>" % status
        async with answering(page) as url:
            failed = await run_command(
                *("search", "x", "--kb", "k"), env={"GATEWAY_URL": url, "GATEWAY_TOKEN": "x"}
            )
        assert (failed.code, failed.out) == (FAILED, ""), status
        assert len(failed.err.splitlines()) == 1, failed.err


MISTAKES: dict[str, tuple[str, ...]] = {
    "no_command": (),
    "unknown_command": ("frobnicate",),
    "unknown_option": ("ask", "x", "--frobnicate"),
    "no_question": ("ask",),
    "no_kb": ("search", "x"),
    "top_k": ("search", "x", "--kb", "k", "--top-k", "0"),
    "no_allow": ("import", ".", "--kb", "k"),
    "no_such_path": ("import", "no-such-file.md", "--kb", "k", "--allow", "public"),
    "unknown_act": ("releases", "frobnicate", "--kb", "k"),
    "no_release": ("releases", "activate", "--kb", "k"),
    "no_diff": ("releases", "diff"),
    "no_task": ("tasks", "show"),
    "no_document": ("documents", "delete"),
    "bad_acl": ("import", ".", "--kb", "k", "--allow", "everybody"),
    "prune_a_file": ("import", __file__, "--kb", "k", "--allow", "public", "--prune"),
    "no_jobs": ("import", ".", "--kb", "k", "--allow", "public", "--jobs", "0"),
    "unknown_kind": ("revoke", "cat", "tom", "--reason", "r"),
    "no_reason": ("revoke", "user", "tom"),
    "ttl": ("token", "--tenant", "t", "--subject", "s", "--scope", "ask", "--ttl", "5x"),
    "scope": ("token", "--tenant", "t", "--subject", "s", "--scope", "ask,fly"),
    "url": ("ask", "x", "--url", "http://[::1"),
}


async def test_wrong_usage_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    """Exit 2 and a message on stderr, whether a server is there or not."""
    env = {"GATEWAY_TOKEN": "x", "GATEWAY_DATA_DIR": str(tmp_path / "data")}
    ended = await run_commands(*MISTAKES.values(), env=env)
    for (name, command), wrong in zip(MISTAKES.items(), ended, strict=True):
        assert wrong.code == WRONG_USAGE, (name, wrong)
        assert wrong.out == "" or not command, name
        assert wrong.err.strip() or not command, name
        assert "Traceback" not in wrong.err, name


async def test_a_command_without_a_token_says_how_to_give_one() -> None:
    """Exit 2; both ways are named."""
    wrong = await run_command("ask", "x")
    assert wrong.code == WRONG_USAGE
    assert "--token" in wrong.err
    assert "GATEWAY_TOKEN" in wrong.err


@pytest.mark.soak
async def test_a_folder_with_one_broken_file_activates_nothing(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    """Exit 1, the file and its reason in the summary; mended, the same command releases all of it."""
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    (folder / "opening.md").write_text("# Opening\n\nThe library opens at nine.\n")
    (folder / "deep" / "empty.md").write_text(" \n\n")
    env = told(gateway, "ingest", "release")
    command = ("import", str(folder), "--kb", "notes", "--allow", "group:staff", "--activate")
    broken = await run_command(*command, env=env)
    assert (broken.code, broken.out) == (FAILED, "")
    assert "failed (blank, 1): " in broken.err
    assert "  deep/empty.md: " in broken.err
    assert "1 of 2 documents are ready in notes." in broken.err
    assert "Nothing was activated" in broken.err
    assert ".git" not in broken.err
    assert await states(gateway, "notes") == []
    (folder / "deep" / "empty.md").write_text("# Closing\n\nThe library closes at six.\n")
    mended = await run_command(*command, "--json", env=env)
    assert mended.code == DONE
    assert sorted((d["source"], d["state"]) for d in mended.lines) == [
        ("deep/empty.md", "READY"),
        ("opening.md", "READY"),
    ]
    assert "Release 1 is active." in mended.err
    assert await states(gateway, "notes") == ["ACTIVE"]


async def states(gateway: GatewayProcess, knowledge_base: str) -> list[str]:
    """The states of the releases, as `releases list --json` says."""
    listed = await run_command(
        *("releases", "list", "--kb", knowledge_base, "--json"), env=told(gateway, "release")
    )
    assert (listed.code, listed.err) == (DONE, "")
    return [release["state"] for release in listed.lines]


async def test_releases_are_built_activated_and_rolled_back(gateway: GatewayProcess) -> None:
    """Each act by its command, for people and for programs; the sequence only ever rises."""
    shelf = {"knowledge_base": "shelf"}
    await gateway.learn({"a.md": "# A\n\nThe first shelf holds atlases.\n"}, **shelf)
    await gateway.learn({"b.md": "# B\n\nThe second shelf holds books.\n"}, activate="false", **shelf)
    env = told(gateway, "release")

    async def act(*command: str) -> Finished:
        done = await run_command("releases", *command, "--kb", "shelf", env=env)
        assert (done.code, done.err) == (DONE, ""), done
        return done

    built = await gateway.call("POST", "/v1/releases", "release", json={"knowledge_base": "shelf"})
    release_id = (await gateway.task_ended(built.json()["task_id"]))["release_id"]
    assert (await act("activate", release_id)).out == "Release 2 of shelf is active.\n"
    rolled = json.loads((await act("rollback", "--json")).out)
    assert (rolled["knowledge_base"], rolled["release_sequence"]) == ("shelf", 3)
    await gateway.learn({"c.md": "# C\n\nThe third shelf holds charts.\n"}, activate="false", **shelf)
    built_only = json.loads((await act("build", "--no-activate", "--json")).out)["release_id"]
    (changes,) = (await told_of(env, "releases", "diff", built_only, "--json")).lines
    assert [document["source"] for document in changes["documents"]["added"]] == ["c.md"]
    assert "c.md (version 1)" in (await told_of(env, "releases", "diff", built_only)).out
    (shown,) = (await act("show", built_only, "--json")).lines
    assert (shown["release_id"], shown["state"]) == (built_only, "READY")
    assert (await act("activate", built_only)).out == "Release 4 of shelf is active.\n"
    listed = (await act("list", "--json")).lines
    assert sorted(release["state"] for release in listed) == ["ACTIVE", "RETIRED", "RETIRED"]
    table = (await act("list")).out.splitlines()
    assert len(table) == 1 + len(listed)
    assert all(any(release["release_id"] in line for line in table) for release in listed)


async def told_of(env: dict[str, str], *command: str) -> Finished:
    """A command that has worked, and had nothing to complain about."""
    done = await run_command(*command, env=env)
    assert (done.code, done.err) == (DONE, ""), done
    return done


@pytest.mark.soak
async def test_documents_and_tasks_can_be_looked_at(embedded_gateway: GatewayProcess) -> None:
    """Each for people and for programs, with the ids whole however narrow the terminal is."""
    env = told(embedded_gateway, "ingest") | {"COLUMNS": "20"}
    task = await embedded_gateway.learn({"desk.md": "# Desk\n\nThe desk is oak.\n"}, knowledge_base="desks")
    (documents, tasks, shown, watched) = await asyncio.gather(
        told_of(env, "documents", "list", "--kb", "desks", "--json"),
        told_of(env, "tasks", "list", "--kb", "desks", "--json"),
        told_of(env, "tasks", "show", task["task_id"]),
        told_of(env, "tasks", "watch", task["task_id"]),
    )
    (document,) = documents.lines
    assert (document["source"], document["standing"]["document_version"]) == ("desk.md", 1)
    assert [one["task_id"] for one in tasks.lines] == [task["task_id"]]
    assert "desk.md" in shown.out
    assert watched.out == "succeeded\n"
    (table, spoken, task_table) = await asyncio.gather(
        told_of(env, "documents", "list", "--kb", "desks"),
        told_of(env, "documents", "show", document["document_id"]),
        told_of(env, "tasks", "list", "--kb", "desks"),
    )
    assert document["document_id"] in table.out.splitlines()[1]
    assert "desk.md" in spoken.out
    assert task["task_id"] in task_table.out.splitlines()[1]


@pytest.mark.soak
async def test_a_deleted_document_is_gone_and_its_clean_up_can_be_followed(
    embedded_gateway: GatewayProcess,
) -> None:
    """`documents delete` names the task; that one tells what was removed and what remains."""
    env = told(embedded_gateway, "ingest")
    task = await embedded_gateway.learn({"lamp.md": "# Lamp\n\nThe lamp is brass.\n"}, knowledge_base="lamps")
    deleted = await told_of(env, "documents", "delete", task["documents"][0]["document_id"], "--json")
    (answer,) = deleted.lines
    await told_of(env, "tasks", "watch", answer["task_id"])
    listed, shown, again = await asyncio.gather(
        told_of(env, "documents", "list", "--kb", "lamps", "--json"),
        told_of(env, "tasks", "show", answer["task_id"]),
        run_command("documents", "delete", answer["document_id"], env=env),
    )
    assert listed.lines == []
    assert "removed" in shown.out
    assert "remains" in shown.out
    assert (again.code, again.err.partition(":")[0]) == (FAILED, "not_found")


async def test_a_revoked_user_is_refused_at_once(gateway: GatewayProcess) -> None:
    """`revoke` for people and for programs; the user's next question ends with exit 1."""
    env = told(gateway, "revoke")
    command = ("revoke", "user", "--reason", "left the company")
    spoken = await run_command(*command, "eve", env=env)
    written = await run_command(*command, "mallory", "--json", env=env)
    assert (spoken.code, spoken.err, written.code) == (DONE, "", DONE)
    assert spoken.out.startswith("Revoked: ")
    assert json.loads(written.out)["revocation_epoch"] > 0
    asked = await run_command("ask", QUESTION, env=told(gateway, subject="eve"))
    assert (asked.code, asked.out) == (FAILED, "")
    assert asked.err.startswith("principal_revoked: ")


async def test_capacity_without_anything_to_measure_is_a_failure(embedded_gateway: GatewayProcess) -> None:
    """Nobody asks meanwhile, nobody is there; options alone need no server."""
    watched = ("capacity", "--url", embedded_gateway.base_url, "--seconds", "0.1")
    nobody = ("capacity", "--url", "http://127.0.0.1:1", "--seconds", "0.1")
    reckoned = ("capacity", "--arrivals", "8", "--generation-seconds", "2", "--places", "generation=4")
    ended = await run_commands(watched, nobody, reckoned)
    said = [[line.partition(":")[0] for line in one.err.splitlines()] for one in ended]
    watching = "watching for 0.1 seconds"
    assert [one.code for one in ended] == [FAILED, FAILED, DONE]
    assert said == [[watching, "metrics_unusable"], [watching, "server_unreachable"], []]
    assert "questions a second, used up at 2" in ended[2].out


async def test_settings_show_what_is_in_force_and_no_secret() -> None:
    """One `NAME=value` a line, sorted; the key is masked, an unset one is empty."""
    shown = await run_command(
        "settings", env={"GATEWAY_MODEL_API_KEY": "sk-secret", "GATEWAY_TOP_K": "5", "COLUMNS": "20"}
    )
    assert (shown.code, shown.err) == (DONE, "")
    values = dict(line.split("=", 1) for line in shown.out.splitlines())
    assert [name.lower() for name in values] == sorted(name.lower() for name in values)
    assert values["GATEWAY_TOP_K"] == "5"
    assert values["GATEWAY_MODEL_BASE_URL"] == ""
    assert set(values["GATEWAY_MODEL_API_KEY"]) == {"*"}
    assert "sk-secret" not in shown.out
