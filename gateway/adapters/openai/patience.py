"""The clocks of one model call, sans IO: how long the next wait may be, and in whose name it ends."""

import time

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded

#: how long usage and the end of the stream may still take once the model has finished its answer
TAIL_S = 0.5


class Patience:
    """First token, idle and total in one place; built when the call starts.

    Runs only between ``resume`` and ``pause``: a reader that is slow itself doesn't use up the model's time.
    """

    def __init__(self, deadline: Deadline, first_token_cap_ms: float, idle_cap_ms: float) -> None:
        self._deadline = deadline
        self._idle_s = idle_cap_ms / 1000
        self._stage, self._cap_s = "first_token", first_token_cap_ms / 1000
        self._spent_s = 0.0
        self._since = time.monotonic()

    def resume(self) -> None:
        self._since = time.monotonic()

    def pause(self) -> None:
        self._spent_s += time.monotonic() - self._since

    def text_came(self) -> None:
        self._restart("idle", self._idle_s)

    def answer_ended(self) -> None:
        self._restart("idle", TAIL_S)

    def _restart(self, stage: str, cap_s: float) -> None:
        self._stage, self._cap_s, self._spent_s, self._since = stage, cap_s, 0.0, time.monotonic()

    def next_wait(self) -> tuple[str, float]:
        """Stage and seconds; raises DeadlineExceeded when there are none."""
        left_s = self._cap_s - self._spent_s - (time.monotonic() - self._since)
        total_s = self._deadline.remaining()
        stage, seconds = ("total", total_s) if total_s <= left_s else (self._stage, left_s)
        if seconds <= 0:
            raise DeadlineExceeded(stage)
        return stage, seconds
