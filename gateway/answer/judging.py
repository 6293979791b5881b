"""Judging: what the gate reads of passages, off the event loop, one question at a time."""

import math
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio import to_thread

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded

T = TypeVar("T")

_STAGE = "gate"


class Judging:
    """Of one process. Reading the passages of a question takes some 10 ms, which every stream would wait for.
    Several threads at it at once would keep the interpreter from the event loop for longer than that.
    """

    def __init__(self) -> None:
        self._turn = anyio.CapacityLimiter(1)

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return self._turn.statistics().tasks_waiting

    async def run(self, deadline: Deadline, read: Callable[[], T]) -> T:
        """What ``read`` gives. Raises DeadlineExceeded and what it raises."""
        with anyio.move_on_after(deadline.budget(_STAGE, math.inf)):
            return await to_thread.run_sync(read, limiter=self._turn)
        raise DeadlineExceeded(_STAGE)
