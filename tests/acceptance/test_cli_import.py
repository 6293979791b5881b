"""``qa-gateway import`` of folders against a real server: sent once, resumed, pruned, looked at before.

What is asked here doesn't depend on the parts behind the server: embedded ones are enough.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from tests.harness.process import Finished, GatewayProcess, gateway_process, run_command, spawned
from tests.harness.proxy import proxy_to

pytestmark = pytest.mark.asyncio(loop_scope="module")

DONE, FAILED, WRONG_USAGE = 0, 1, 2
PATIENCE_S = 60
HOURS = "# Hours\n\nThe library opens at {}.\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path_factory.mktemp("import")) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.md", "b.md", "deep/c.md"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(HOURS.format(name))
    return tmp_path / "docs"


def told(gateway: GatewayProcess, url: str | None = None) -> dict[str, str]:
    return {
        "GATEWAY_URL": url or gateway.base_url,
        "GATEWAY_TOKEN": gateway.token("ask", "ingest", "release"),
    }


def command(folder: Path, kb: str) -> tuple[str, ...]:
    return ("import", str(folder), "--kb", kb, "--allow", "group:staff")


async def imported(gateway: GatewayProcess, folder: Path, kb: str, *more: str) -> Finished:
    return await run_command(*command(folder, kb), "--json", *more, env=told(gateway))


def outcomes(finished: Finished) -> dict[str, str]:
    return {line["source"]: line["outcome"] for line in finished.lines}


async def listed(gateway: GatewayProcess, kb: str) -> dict[str, int]:
    """The versions of the documents by their names."""
    answer = await gateway.call("GET", f"/v1/documents?knowledge_base={kb}", "ingest")
    return {d["source"]: d["document_version"] for d in answer.json()["documents"]}


async def imports_of(gateway: GatewayProcess, kb: str) -> list[dict[str, Any]]:
    answer = await gateway.call("GET", f"/v1/tasks?knowledge_base={kb}&kind=import", "ingest")
    tasks: list[dict[str, Any]] = answer.json()["tasks"]
    return tasks


async def test_a_second_run_sends_only_what_has_changed(gateway: GatewayProcess, folder: Path) -> None:
    """No upload for an unchanged folder, one document for one changed file."""
    first = await imported(gateway, folder, "twice", "--activate")
    assert (first.code, set(outcomes(first).values())) == (DONE, {"imported"})
    assert "Release 1 is active." in first.err
    again = await imported(gateway, folder, "twice", "--activate")
    assert (again.code, set(outcomes(again).values())) == (DONE, {"unchanged"})
    assert "3 of 3 documents are ready in twice; 3 of them were there already." in again.err
    assert len(await imports_of(gateway, "twice")) == 1
    (folder / "b.md").write_text(HOURS.format("five"))
    changed = await imported(gateway, folder, "twice", "--activate")
    assert outcomes(changed) == {"a.md": "unchanged", "b.md": "imported", "deep/c.md": "unchanged"}
    assert "Release 2 is active." in changed.err
    assert await listed(gateway, "twice") == {"a.md": 1, "b.md": 2, "deep/c.md": 1}


@pytest.mark.soak
async def test_a_dry_run_says_everything_and_sends_nothing(gateway: GatewayProcess, folder: Path) -> None:
    """New, changed, unchanged, passed over, impossible and to be deleted, each file on a line of its own."""
    await imported(gateway, folder, "dry")
    (folder / "a.md").write_text(HOURS.format("two"))
    (folder / "deep" / "c.md").unlink()
    (folder / "new.md").write_text(HOURS.format("ten"))
    (folder / "photo.png").write_bytes(b"png")
    (folder / "tab\t.md").write_text(HOURS.format("one"))
    dry = await imported(gateway, folder, "dry", "--dry-run", "--prune")
    assert dry.code == FAILED
    assert {line["source"]: line["plan"] for line in dry.lines} == {
        "a.md": "changed",
        "b.md": "unchanged",
        "deep/c.md": "delete",
        "new.md": "new",
        "photo.png": "passed_over",
        "tab\\t.md": "failed",
    }
    assert "1 new, 1 changed, 1 unchanged, 1 can't be imported, 1 to be deleted." in dry.err
    assert len(await imports_of(gateway, "dry")) == 1
    assert await listed(gateway, "dry") == {"a.md": 1, "b.md": 1, "deep/c.md": 1}


@pytest.mark.soak
async def test_pruning_deletes_what_the_folder_no_longer_has(gateway: GatewayProcess, folder: Path) -> None:
    """Never without being asked twice: exit 2 and nothing done when nobody can be asked."""
    await imported(gateway, folder, "pruned", "--activate")
    (folder / "deep" / "c.md").unlink()
    alone = await imported(gateway, folder, "pruned", "--prune")
    assert (alone.code, alone.out) == (WRONG_USAGE, "")
    assert "deep/c.md" in alone.err
    assert len(await listed(gateway, "pruned")) == 3
    pruned = await imported(gateway, folder, "pruned", "--prune", "--yes", "--activate")
    assert pruned.code == DONE
    assert "Deleted, because no longer in the folder: 1." in pruned.err
    assert set(await listed(gateway, "pruned")) == {"a.md", "b.md"}
    assert "is active." in pruned.err


async def test_failures_are_told_by_reason_with_what_to_do(gateway: GatewayProcess, folder: Path) -> None:
    """The good ones are released when that is wanted; the exit code says that something is amiss."""
    (folder / "blank.md").write_text(" \n")
    (folder / "deep" / "blank.md").write_text("\n")
    partial = await imported(gateway, folder, "partial", "--activate", "--allow-partial")
    assert partial.code == FAILED
    assert "failed (blank, 2): no text was found in it; write something into it" in partial.err
    failed = {line["source"]: line["reason"] for line in partial.lines if line["outcome"] == "failed"}
    assert failed == {"blank.md": "blank", "deep/blank.md": "blank"}
    assert "Release 1 is active." in partial.err
    answer = await gateway.call("GET", "/v1/releases?knowledge_base=partial", "release")
    assert answer.json()["releases"][0]["documents"] == 3


async def test_ctrl_c_stops_sending_and_the_next_run_does_the_rest(
    gateway: GatewayProcess, folder: Path, tmp_path: Path
) -> None:
    """Exit 1 and how to go on, without a traceback; nothing is imported twice."""
    errors = tmp_path / "stderr.txt"
    async with proxy_to(gateway.port) as proxy:
        env = told(gateway, f"http://127.0.0.1:{proxy.port}")
        proxy.stall()
        async with spawned(*command(folder, "stopped"), errors=errors, env=env) as process:
            with anyio.fail_after(PATIENCE_S):
                await proxy.held()
                process.send_signal(signal.SIGINT)
                proxy.flow()
                assert await process.wait() == FAILED
    assert "Traceback" not in errors.read_text()
    finished = await imported(gateway, folder, "stopped")
    assert finished.code == DONE
    assert await listed(gateway, "stopped") == {"a.md": 1, "b.md": 1, "deep/c.md": 1}
