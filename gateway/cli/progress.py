"""How an import is getting on: a bar on a terminal, a line now and then everywhere else."""

import time
from types import TracebackType

from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.options import notes

_LINE_EVERY_S = 5.0


class ImportProgress:
    """``files`` and ``bytes_`` are what there is to send. Any thread may tell it something."""

    def __init__(self, files: int, bytes_: int) -> None:
        self._files = files
        self._bytes = bytes_
        self._sent_bytes = 0
        self._done = 0
        self._stage = "uploading"
        self._line_at = time.monotonic() + _LINE_EVERY_S
        self._bar: Progress | None = None
        if files and notes.is_terminal and not notes.is_dumb_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[sent]}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=notes)
            self._task = self._bar.add_task("uploading", total=files, sent=self._sent())

    def __enter__(self) -> "ImportProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def stage(self, text: str) -> None:
        if text != self._stage:
            self._stage = text
            self._show()

    def waits(self, code: str, seconds: float) -> None:
        """For the server, which has said why."""
        self.stage(f"waiting: {code}, retry in {max(1, round(seconds))} s")

    def sent(self, bytes_: int) -> None:
        """So many more bytes are with the server."""
        self._sent_bytes += bytes_
        self._show()

    def done(self, files: int) -> None:
        """So many files have been imported, or have failed."""
        if files != self._done:
            self._done = files
            self._show()

    def _show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=self._stage, completed=self._done, sent=self._sent())
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            line = f"{self._stage}: {self._done} of {self._files} files, {self._sent()}"
            notes.print(line, markup=False)

    def _sent(self) -> str:
        return f"{decimal(self._sent_bytes)} of {decimal(self._bytes)} sent"
