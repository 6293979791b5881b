"""Steps apart: whatever is asked of Redis runs in a task of its own, and few at a time.

A cancel inside redis-py may lose a connection of its pool; so nobody's cancel gets there.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

#: more wait for their turn
_AT_ONCE = 16


class StepsApart:
    """Of one client."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Its outcome. Who is cancelled meanwhile leaves: the step goes on, and its reply is dropped."""
        try:
            await self._turns.acquire()
        except BaseException:
            step.close()
            raise
        task = asyncio.create_task(step)
        self._running.add(task)
        task.add_done_callback(self._ended)
        await asyncio.wait({task})
        return task.result()

    async def ended(self, within_s: float) -> None:
        """What is under way gets that long."""
        if self._running:
            await asyncio.wait(self._running, timeout=within_s)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._turns.release()
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have gone
