"""Patience: one timer that ends when too little has happened for too long."""

import asyncio
from collections.abc import Callable


class Patience:
    """Calls ``on_late`` when ``progress()`` grew by less than ``least`` within a limit, else waits anew."""

    def __init__(self, progress: Callable[[], int], least: int, on_late: Callable[[], None]) -> None:
        self._progress = progress
        self._least = least
        self._on_late = on_late
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        return self._timer is not None

    def start(self, limit_s: float) -> None:
        """From now on; whatever ran before is forgotten."""
        self.stop()
        self._timer = self._loop.call_later(limit_s, self._look, limit_s, self._progress())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, limit_s: float, before: int) -> None:
        self._timer = None
        if self._progress() - before >= self._least:
            self.start(limit_s)
        else:
            self._on_late()
