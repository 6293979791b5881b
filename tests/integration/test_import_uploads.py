"""Uploads of an import against a server that refuses, loses answers and says why: over real sockets."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.access.classes import Acl
from gateway.cli.folder import FoundFile, found_below
from gateway.cli.following import ImportRun, Outcome
from gateway.cli.metadata import Metadata
from gateway.cli.patience import Patience
from gateway.cli.progress import ImportProgress
from gateway.cli.uploading import Uploader, batches
from gateway.client import ApiError, GatewayClient

TEXT = "# Hours\n\nThe library opens at nine.\n"
METADATA = Metadata("handbook", Acl.parse(["group:staff"]))


@dataclass
class Script:
    """What the server says to an upload of these names: a status with a code, or None to hang up unheard.

    ``state`` and ``error`` are what becomes of each accepted name; ``keys`` are the idempotency keys seen.
    """

    answer: Callable[[list[str]], tuple[int, str] | None] = lambda _: (202, "")
    state: Callable[[str], tuple[str, str | None]] = lambda _: ("READY", None)
    task_state: str = "SUCCEEDED"
    uploads: list[list[str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tasks: dict[str, list[str]] = field(default_factory=dict)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        names = re.findall(r'filename="([^"]*)"', body)
        script = self.script
        script.uploads.append(names)
        script.keys.append(self.headers["Idempotency-Key"])
        answer = script.answer(names)
        if answer is None:
            self.close_connection = True
            return
        if answer[0] != 202:
            self._say(answer[0], {"code": answer[1], "detail": ""})
            return
        task_id = self.headers["Idempotency-Key"]
        script.tasks[task_id] = names
        accepted = [{"document_id": f"doc_{n}", "document_version": 1, "source": n} for n in names]
        self._say(202, {"task_id": task_id, "documents": accepted})

    def do_GET(self) -> None:
        names = self.script.tasks[self.path.rpartition("/")[2]]
        documents = []
        for name in names:
            state, error = self.script.state(name)
            documents.append(
                {"document_id": f"doc_{name}", "document_version": 1, "source": name}
                | {"state": state, "error": error}
            )
        failed = self.script.task_state != "SUCCEEDED"
        end = {"code": "deadline_exceeded", "detail": "the task ran out of time"} if failed else None
        progress = {"done": len(names), "total": len(names)}
        self._say(
            200,
            {"state": self.script.task_state, "stage": "built", "progress": progress}
            | {"error": end, "documents": documents},
        )

    def _say(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def client(script: Script) -> Iterator[GatewayClient]:
    handler = type("Handler", (_Handler,), {"script": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with GatewayClient(f"http://127.0.0.1:{server.server_port}", "token") as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def files(folder: Path, *names: str) -> list[FoundFile]:
    for name in names:
        (folder / name).write_text(TEXT)
    return found_below([folder]).files


def run(client: GatewayClient, found: list[FoundFile], jobs: int = 1) -> list[Outcome]:
    patience = Patience(30.0, lambda *_: None)
    uploader = Uploader(client, METADATA, patience)
    one = ImportRun(client, uploader, patience, ImportProgress(len(found), 0))
    one.run(found, jobs)
    return sorted(one.outcomes, key=lambda outcome: outcome.source)


def test_batches_are_bounded_by_count_and_by_bytes(tmp_path: Path) -> None:
    """In order; a file larger than a batch goes alone."""
    mega = 1024 * 1024

    def sizes(*given: int) -> list[int]:
        found = [FoundFile(f"{n}.md", tmp_path, size) for n, size in enumerate(given)]
        return [len(batch) for batch in batches(found)]

    assert sizes(*[10] * 120) == [50, 50, 20]
    assert sizes(3 * mega, 3 * mega, 3 * mega, 20 * mega, 1) == [2, 1, 1, 1]
    assert sizes() == []


def test_every_file_is_imported_however_many_go_at_a_time(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """Each once, and each is accounted for."""
    names = [f"{number:03}.md" for number in range(230)]
    outcomes = run(client, files(tmp_path, *names), jobs=4)
    assert [outcome.source for outcome in outcomes] == names
    assert {outcome.outcome for outcome in outcomes} == {"imported"}
    assert sorted(name for upload in script.uploads for name in upload) == names


def test_one_refused_file_is_found_among_those_it_travels_with(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """The others are imported; it fails with the server's own code."""
    script.answer = lambda names: (415, "unsupported_type") if "5.md" in names else (202, "")
    outcomes = run(client, files(tmp_path, *(f"{number}.md" for number in range(10))))
    assert [(o.source, o.reason) for o in outcomes if o.outcome == "failed"] == [("5.md", "unsupported_type")]
    assert sum(outcome.state == "READY" for outcome in outcomes) == 9


def test_an_answer_that_got_lost_makes_no_second_upload(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """It is asked for again under the same key: for the server that is the same upload."""
    script.answer = lambda _: None if len(script.uploads) == 1 else (202, "")
    (outcome,) = run(client, files(tmp_path, "a.md"))
    assert outcome.outcome == "imported"
    assert script.uploads == [["a.md"], ["a.md"]]
    assert len(set(script.keys)) == 1


def test_a_busy_server_is_waited_for(script: Script, client: GatewayClient, tmp_path: Path) -> None:
    """503, then 429, then the upload passes."""
    answers = {1: (503, "overloaded"), 2: (429, "rate_limited")}
    script.answer = lambda _: answers.get(len(script.uploads), (202, ""))
    (outcome,) = run(client, files(tmp_path, "a.md"))
    assert (outcome.outcome, len(script.uploads)) == ("imported", 3)


def test_what_no_file_is_to_blame_for_ends_the_import(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """A token without the right: one upload is enough to know."""
    script.answer = lambda _: (403, "scope_missing")
    with pytest.raises(ApiError) as raised:
        run(client, files(tmp_path, *(f"{number:03}.md" for number in range(200))))
    assert raised.value.problem_code == "scope_missing"
    assert len(script.uploads) < 4


def test_a_task_that_ends_otherwise_fails_what_it_has_not_done(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """With the task's own reason; what was ready by then is imported."""
    script.task_state = "FAILED"
    script.state = lambda name: ("READY", None) if name == "a.md" else ("BUILDING", None)
    good, bad = run(client, files(tmp_path, "a.md", "b.md"))
    assert (good.outcome, bad.outcome) == ("imported", "failed")
    assert (bad.reason, bad.detail) == ("deadline_exceeded", "the task ran out of time")


def test_a_file_that_vanishes_before_its_turn_is_a_failure(
    script: Script, client: GatewayClient, tmp_path: Path
) -> None:
    """The rest of its batch is sent."""
    found = files(tmp_path, "a.md", "b.md")
    (tmp_path / "a.md").unlink()
    gone, good = run(client, found)
    assert (gone.reason, gone.detail) == ("unreadable", "No such file or directory")
    assert good.outcome == "imported"
    assert script.uploads == [["b.md"]]
