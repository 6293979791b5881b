"""Uploads of many files side by side, in batches; whatever is refused is narrowed down to the file."""

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gateway.cli.folder import FoundFile, LeftOut
from gateway.cli.metadata import Metadata, media_type_of
from gateway.cli.patience import Patience
from gateway.client import ApiError, GatewayClient, UploadedFile

_BATCH_FILES = 50
_BATCH_BYTES = 8 * 1024 * 1024
#: what may be one file's fault
_OF_A_FILE = frozenset({400, 413, 415, 422})


@dataclass(slots=True)
class Sent:
    """What became of a batch: the tasks that import it, and the files that never got so far.

    ``tasks`` are ``(task id, {document id: source})``.
    """

    bytes_: int
    tasks: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    failed: list[LeftOut] = field(default_factory=list)


def batches(files: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
    """Groups of files small enough for one upload each."""
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) >= _BATCH_FILES or size + file.size_bytes > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size_bytes
    if batch:
        yield batch


class Uploader:
    """Safe for several threads, each with a batch."""

    def __init__(self, gateway: GatewayClient, metadata: Metadata, patience: Patience) -> None:
        self._gateway = gateway
        self._metadata = metadata
        self._patience = patience

    def send(self, batch: Sequence[FoundFile]) -> Sent:
        """Raises ApiError and ServerUnreachable for what no single file is to blame for."""
        sent = Sent(sum(file.size_bytes for file in batch))
        contents = []
        for file in batch:
            try:
                contents.append(UploadedFile(file.source, _content(file), media_type_of(file.source)))
            except _Changed:
                sent.failed.append(LeftOut(file.source, "changed"))
            except OSError as error:
                sent.failed.append(LeftOut(file.source, "unreadable", error.strerror or ""))
        if contents:
            self._send(contents, sent)
        return sent

    def _send(self, files: Sequence[UploadedFile], sent: Sent) -> None:
        key = str(uuid.uuid4())  # an upload whose answer was lost isn't taken for another one
        fields = self._metadata.fields()
        try:
            accepted = self._patience.call(lambda: self._gateway.upload(files, fields, idempotency_key=key))
        except ApiError as error:
            if error.status not in _OF_A_FILE:
                raise
            self._narrow_down(files, error, sent)
            return
        names = {d["document_id"]: f.source for d, f in zip(accepted["documents"], files, strict=True)}
        sent.tasks.append((accepted["task_id"], names))

    def _narrow_down(self, files: Sequence[UploadedFile], error: ApiError, sent: Sent) -> None:
        if len(files) == 1:
            sent.failed.append(LeftOut(files[0].source, error.problem_code, error.detail))
            return
        middle = len(files) // 2
        self._send(files[:middle], sent)
        self._send(files[middle:], sent)


class _Changed(Exception):
    """Somebody wrote into the file while it was read: half of it may be old."""


def _content(file: FoundFile) -> bytes:
    """Raises OSError, _Changed."""
    with file.path.open("rb") as opened:
        before = os.fstat(opened.fileno())
        content = opened.read()
        after = os.fstat(opened.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or (
        len(content) != after.st_size
    ):
        raise _Changed()
    return content
