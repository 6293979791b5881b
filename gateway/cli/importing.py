"""Uploading a folder: batches, tasks, a progress bar, a summary of failures."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.options import notes
from gateway.client import GatewayClient
from gateway.errors import DocumentRejected
from gateway.ingest.parsing import format_of

_BATCH_FILES = 20
_BATCH_BYTES = 8 * 1024 * 1024
_POLL_S = 0.2
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")

Upload = tuple[str, Path]


@dataclass
class ImportReport:
    """What became of an import, document by document."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    activation: dict[str, Any] | None = None


def uploads_below(paths: Sequence[Path], include: Sequence[str]) -> tuple[list[Upload], int]:
    """``(source, path)`` of every file, and how many were passed over.

    A folder's files are named by their path below it; hidden ones, those that match no ``include``
    pattern and types that no parser reads are passed over there. A file named by itself is always sent.
    """
    found: list[Upload] = []
    skipped = 0
    for path in paths:
        if path.is_dir():
            below = [(file.relative_to(path), file) for file in sorted(path.rglob("*")) if file.is_file()]
            wanted = [(name.as_posix(), file) for name, file in below if _wanted(name, include)]
            skipped += len(below) - len(wanted)
            found += wanted
        elif path.is_file():
            found.append((path.name, path))
        else:
            raise typer.BadParameter(f"{path} does not exist")
    return found, skipped


def _wanted(name: Path, include: Sequence[str]) -> bool:
    if any(part.startswith(".") for part in name.parts):
        return False
    if include and not any(name.match(pattern) for pattern in include):
        return False
    try:
        format_of(name.as_posix(), "")
    except DocumentRejected:
        return False
    return True


def batches(uploads: Sequence[Upload]) -> Iterator[list[Upload]]:
    """Groups of files small enough for one upload each."""
    batch: list[Upload] = []
    size = 0
    for upload in uploads:
        bytes_ = upload[1].stat().st_size
        if batch and (len(batch) >= _BATCH_FILES or size + bytes_ > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(upload)
        size += bytes_
    if batch:
        yield batch


def import_all(
    gateway: GatewayClient,
    uploads: Sequence[Upload],
    fields: Mapping[str, str | list[str]],
    *,
    activate: bool,
) -> ImportReport:
    """Uploads everything, waits for every task, then builds and activates one release.

    Nothing is activated when a document failed.
    """
    report = ImportReport()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=notes) as progress:
        bar = progress.add_task("importing", total=len(uploads))
        for batch in batches(uploads):
            accepted = gateway.upload(batch, fields)
            task = wait_for(gateway, accepted["task_id"])
            progress.advance(bar, len(batch))
            report.documents += task["documents"]
            failed = [(d["source"], d["error"]) for d in task["documents"] if d["error"] is not None]
            report.failures += failed
            if task["state"] != "SUCCEEDED" and not failed:
                error = task["error"] or {"code": task["state"], "detail": ""}
                report.failures.append((batch[0][0], f"{error['code']}: {error['detail']}"))
                break
        progress.update(bar, description="imported")
        if activate and not report.failures:
            steps = progress.add_task("releasing", total=1)
            report.activation = release(gateway, str(fields["knowledge_base"]))
            progress.update(steps, completed=1, description="released")
    return report


def release(gateway: GatewayClient, knowledge_base: str) -> dict[str, Any]:
    """Builds a release of what is live, waits, activates it. Raises ApiError, typer.Exit."""
    task = wait_for(gateway, gateway.build_release(knowledge_base)["task_id"])
    if task["state"] != "SUCCEEDED":
        error = task["error"] or {"code": task["state"], "detail": "the build did not succeed"}
        notes.print(f"{error['code']}: {error['detail']}", markup=False)
        raise typer.Exit(1)
    return gateway.activate(task["release_id"])


def wait_for(gateway: GatewayClient, task_id: str) -> dict[str, Any]:
    """The task once it has ended. Raises ApiError, ServerUnreachable."""
    while True:
        task = gateway.task(task_id)
        if task["state"] in _ENDED:
            return task
        time.sleep(_POLL_S)
