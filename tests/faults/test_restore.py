"""A data folder that is lost: a backup and the journal bring back all but what was taken away since."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.harness.process import GatewayProcess, eventually, gateway_process, run_command

PATIENCE_S = 240
Note = Callable[[str], None]

CERTS = {"certs.md": "# Certificates\n\nThe certificate is rotated every 90 days with certctl rotate.\n"}
LUNCH = {"lunch.md": "# Lunch\n\nLunch is served between noon and two o'clock in the canteen.\n"}
QUESTION = "How often is the certificate rotated?"
OF_LUNCH = "When is lunch served?"


@pytest.mark.soak
@pytest.mark.fault("FLT-11")
async def test_a_lost_data_folder_comes_back_from_a_backup(tmp_path: Path, evidence: Note) -> None:
    """Backed up beside the server, killed, removed, restored, confirmed; what was deleted stays deleted."""
    target, journal = tmp_path / "backups", tmp_path / "journal"
    env = {"GATEWAY_JOURNAL_URL": str(journal)}
    with anyio.fail_after(PATIENCE_S):
        async with gateway_process(tmp_path / "old", env=env) as old:
            await old.learn(CERTS)
            lunch = await old.learn(LUNCH)
            sources = await sources_of(old, QUESTION)
            saved = await run_command("backup", str(target), "--data-dir", str(old.data_dir), "--json")
            assert saved.code == 0, saved.err
            await old.call("DELETE", f"/v1/documents/{lunch['documents'][0]['document_id']}", "ingest")
            await eventually(lambda: is_empty_lag(journal))
            os.kill(old.pid, signal.SIGKILL)
            await old.ended()
        shutil.rmtree(old.data_dir)

        new = tmp_path / "new"
        arguments = ("--data-dir", str(new / "data"), "--journal", str(journal))
        back = await run_command("restore", str(target), *arguments, "--json", "--confirm")
        assert back.code == 0, back.err
        report = json.loads(back.out.splitlines()[0])
        assert report["replayed"] == 1
        assert report["citations"] >= 2
        async with gateway_process(new, env=env) as again:
            assert await sources_of(again, QUESTION) == sources
            assert "lunch.md" not in await sources_of(again, OF_LUNCH)
    evidence(
        f"RPO {report['backup_age_s']:.1f} s for imports, {report['newest_entry_age_s']:.1f} s since the "
        f"last act, none lost; RTO {report['took_s']:.1f} s; {report['citations']} sampled citations "
        "read back"
    )


async def sources_of(gateway: GatewayProcess, question: str) -> set[str]:
    """The documents that an answer cites; none for a refusal."""
    status, events, problem = await gateway.ask(question)
    assert status == 200, problem
    return {citation["uri"] for citation in events[-1].data.get("citations", [])}


async def is_empty_lag(journal: Path) -> bool:
    """The deletion has arrived in the journal."""
    return any(journal.rglob("*.json"))
