"""One import under way: uploads side by side, and their tasks followed until each has ended."""

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from gateway.cli.comparing import READY
from gateway.cli.folder import FoundFile, LeftOut
from gateway.cli.patience import Patience
from gateway.cli.progress import ImportProgress
from gateway.cli.uploading import Sent, Uploader, batches
from gateway.cli.waiting import FIRST_POLL_S, LONGEST_POLL_S, Task, ended, error_of, said_of
from gateway.client import GatewayClient


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file. ``outcome``: imported, unchanged or failed; ``error``: ``reason: detail``."""

    outcome: str
    source: str
    document_id: str | None
    document_version: int | None
    state: str
    error: str | None

    @classmethod
    def unchanged(cls, document: Mapping[str, Any]) -> "Outcome":
        ref = document["document_id"], document["standing"]["document_version"]
        return cls("unchanged", document["source"], *ref, READY, None)

    @classmethod
    def never_sent(cls, left_out: LeftOut) -> "Outcome":
        error = f"{left_out.reason}: {left_out.detail}".removesuffix(": ")
        return cls("failed", left_out.source, None, None, "FAILED", error)

    @property
    def reason(self) -> str:
        """Its stable code; empty when nothing is wrong."""
        return (self.error or "").partition(":")[0]

    @property
    def detail(self) -> str:
        return (self.error or "").partition(":")[2].strip()


class ImportRun:
    """``outcomes`` grows while it runs; ``handed_over`` counts the files that the server has taken."""

    def __init__(
        self, gateway: GatewayClient, uploader: Uploader, patience: Patience, progress: ImportProgress
    ) -> None:
        self._gateway = gateway
        self._uploader = uploader
        self._patience = patience
        self._progress = progress
        self._uploads: set[Future[Sent]] = set()
        self._tasks: deque[tuple[str, dict[str, str]]] = deque()
        self._head: Task | None = None
        self._pause_s = FIRST_POLL_S
        self._look_at = 0.0
        self.outcomes: list[Outcome] = []
        self.handed_over = 0

    def run(self, files: Sequence[FoundFile], jobs: int) -> None:
        """Until the last task has ended. Raises ApiError and ServerUnreachable, with nothing on its way any
        more; what was handed over goes on.
        """
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="upload")
        try:
            self._uploads = {pool.submit(self._uploader.send, batch) for batch in batches(files)}
            while self._uploads or self._tasks:
                self._collect()
                if self._tasks and time.monotonic() >= self._look_at:
                    self._look()
            self._progress.stage("imported")
        finally:
            self._patience.stopped.set()
            pool.shutdown(cancel_futures=True)

    def _collect(self) -> None:
        """What has been sent by now; waits for it until the next look at a task is due."""
        pause_s = max(0.0, self._look_at - time.monotonic()) if self._tasks else None
        if not self._uploads:
            time.sleep(pause_s or 0.0)
            return
        done, self._uploads = wait(self._uploads, pause_s, FIRST_COMPLETED)
        for upload in done:
            self._take(upload.result())

    def _take(self, sent: Sent) -> None:
        self._tasks.extend(sent.tasks)
        self.handed_over += sum(len(names) for _, names in sent.tasks)
        self.outcomes += map(Outcome.never_sent, sent.failed)
        self._progress.sent(sent.bytes_)
        self._show()

    def _look(self) -> None:
        """At the oldest task alone: a knowledge base's tasks run one by one."""
        task_id, names = self._tasks[0]
        task = self._patience.call(lambda: self._gateway.task(task_id))
        self._head = task
        self._look_at = time.monotonic() + self._pause_s
        self._pause_s = min(
            1.5 * self._pause_s, LONGEST_POLL_S
        )  # looking costs the server what it imports with
        if ended(task):
            self._tasks.popleft()
            self._head, self._look_at, self._pause_s = None, 0.0, FIRST_POLL_S
            self.outcomes += _outcomes(task, names)
        else:
            self._progress.stage(said_of(task))
        self._show()

    def _show(self) -> None:
        under_way = 0 if self._head is None else self._head["progress"]["done"]
        self._progress.done(len(self.outcomes) + under_way)


def _outcomes(task: Task, names: Mapping[str, str]) -> Iterable[Outcome]:
    for document in task["documents"]:
        good = document["state"] == READY
        yield Outcome(
            "imported" if good else "failed",
            names.get(document["document_id"], document["source"]),
            document["document_id"],
            document["document_version"],
            document["state"],
            None if good else document["error"] or error_of(task),
        )
