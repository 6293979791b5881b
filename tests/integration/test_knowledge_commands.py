"""Commands about knowledge against a served world: what is revoked, failed before, or would be pruned."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from typer.testing import CliRunner, Result

from gateway.cli import app
from tests.harness.serving import serving_world
from tests.harness.world import World

PATIENCE_S = 60
DONE, FAILED, WRONG_USAGE = 0, 1, 2
IMPORT = ("import", "--kb", "library", "--allow", "group:staff")
HOURS = "# Hours\n\nThe reading room opens at nine.\n"


@dataclass(frozen=True)
class Terminal:
    """Commands of somebody who may do everything with the tenant's knowledge."""

    world: World
    port: int

    async def run(self, *words: str) -> Result:
        token = self.world.token(scopes=("ask", "ingest", "release", "revoke"))
        where = ["--url", f"http://127.0.0.1:{self.port}", "--token", token]
        return await anyio.to_thread.run_sync(CliRunner().invoke, app, [*words, *where])

    async def said(self, *words: str) -> str:
        """What a command that works prints for people."""
        result = await self.run(*words)
        assert result.exit_code == DONE, result.output
        return str(result.stdout)

    async def lines(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (await self.said(*words, "--json")).splitlines()]

    async def imported(self, folder: Path) -> Result:
        """Worked on meanwhile; what the worker logs is on stdout as well."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.world.worker.run)
            result = await self.run(*IMPORT, str(folder))
            tasks.cancel_scope.cancel()
        return result


@asynccontextmanager
async def terminal() -> AsyncIterator[Terminal]:
    world = World()
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            yield Terminal(world, port)


async def test_revocations_are_made_listed_and_lifted() -> None:
    """The document says in its list that it is revoked and since when, until it is lifted."""
    async with terminal() as mine:
        await mine.world.learn({"hours.md": HOURS, "fees.md": "# Fees\n\nForty cents a day.\n"})
        documents = ("documents", "list", "--kb", "handbook")
        (_, hours) = await mine.lines(*documents)
        document_id = hours["document_id"]
        await mine.said("revoke", "user", "bob", "--reason", "has left")
        (made,) = await mine.lines(
            "revocations", "add", "document", document_id, "--reason", "stairs\nclosed"
        )
        _, fees, hours_line = (await mine.said(*documents)).splitlines()
        assert re.search(r" READY .* fees\.md$", fees)
        assert re.search(r" revoked .* hours\.md  \(revoked \d{4}-\d\d-\d\d \d\d:\d\dZ\)$", hours_line)
        (free, revoked) = await mine.lines(*documents)
        (newest, oldest) = await mine.lines("revocations", "list")
        assert (free["revoked_at"], revoked["revoked_at"]) == (None, newest["created_at"])
        assert re.search(r"revoked at +\d{4}-\d\d-\d\d", await mine.said("documents", "show", document_id))
        assert (newest["revocation_id"], newest["id"]) == (made["revocation_id"], document_id)
        assert (oldest["kind"], oldest["id"], oldest["lifted_at"]) == ("user", "bob", None)
        table = await mine.said("revocations", "list")
        assert len(table.splitlines()) == 3, "a reason doesn't break a line"
        lifted = await mine.said("revocations", "lift", made["revocation_id"])
        assert lifted.startswith(f"Lifted: {made['revocation_id']} of the document {document_id}.\n")
        assert "releases build" in lifted
        assert [one["revoked_at"] for one in await mine.lines(*documents)] == [None, None]


async def test_an_import_says_what_failed_before_and_what_is_revoked(tmp_path: Path) -> None:
    """A file that was never readable hasn't changed; the owner of a revoked one would wait for it in vain."""
    for name, text in (("a.md", HOURS), ("b.md", HOURS), ("blank.md", " \n")):
        (tmp_path / name).write_text(text)
    async with terminal() as mine:
        assert (await mine.imported(tmp_path)).exit_code == FAILED
        (tmp_path / "new.md").write_text(HOURS)
        dry = await mine.run(*IMPORT, str(tmp_path), "--dry-run")
        assert [line.split("  ")[0] for line in dry.stdout.splitlines()] == ["failed before", "new"]
        assert "1 new, 0 changed, 1 failed before, 2 unchanged, 0 can't be imported" in dry.stderr
        plans = {
            line["source"]: line["plan"] for line in await mine.lines(*IMPORT, str(tmp_path), "--dry-run")
        }
        same = dict.fromkeys(("a.md", "b.md"), "unchanged")
        assert plans == {**same, "blank.md": "failed_before", "new.md": "new"}
        for name in ("blank.md", "new.md"):
            (tmp_path / name).unlink()
        (document, *_) = await mine.lines("documents", "list", "--kb", "library")
        await mine.said("revoke", "document", document["document_id"], "--reason", "wrong")
        again = await mine.run(*IMPORT, str(tmp_path))
        assert again.exit_code == DONE
        assert "2 of them were there already" in again.stderr
        assert f"because revoked: 1.\n  a.md: {document['document_id']}\n" in again.stderr


async def test_pruning_without_a_yes_says_what_would_go_and_how_to_agree(tmp_path: Path) -> None:
    """Exit 2 where nobody can be asked, with everything as it was."""
    (tmp_path / "a.md").write_text(HOURS)
    async with terminal() as mine:
        await mine.world.learn({"gone.md": HOURS, "a.md": HOURS}, knowledge_base="library")
        refused = await mine.run(*IMPORT, str(tmp_path), "--prune")
        assert (refused.exit_code, refused.stdout) == (WRONG_USAGE, "")
        told = " ".join(re.sub(r"[│╭╮╰╯─]", " ", refused.stderr).split())
        assert "--prune would delete, because no longer in the folder (1): gone.md" in told
        assert "say --yes to delete these, or leave --prune out" in told
        documents = await mine.lines("documents", "list", "--kb", "library")
        assert [document["source"] for document in documents] == ["a.md", "gone.md"]
