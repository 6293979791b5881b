"""A bulkhead: a named number of places with a bounded wait for one."""

import anyio

from gateway.context import Deadline
from gateway.errors import Overloaded


class Permit:
    """One place in a bulkhead. Released once; further calls do nothing."""

    def __init__(self, bulkhead: "Bulkhead") -> None:
        self._bulkhead: Bulkhead | None = bulkhead

    def release(self) -> None:
        bulkhead, self._bulkhead = self._bulkhead, None
        if bulkhead is not None:
            bulkhead.take_back(self)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Bulkhead:
    """``size`` places; at most ``size`` callers wait, each for ``wait_ms`` at the longest."""

    def __init__(self, name: str, size: int, wait_ms: int) -> None:
        self._name = name
        self.size = size
        self.wait_ms = wait_ms
        self._limiter = anyio.CapacityLimiter(size)

    @property
    def name(self) -> str:
        return self._name

    @property
    def in_use(self) -> int:
        return int(self._limiter.borrowed_tokens)

    @property
    def waiting(self) -> int:
        return self._limiter.statistics().tasks_waiting

    def check_queue(self, deadline: Deadline) -> None:
        """Raises Overloaded when a caller who came now would find no place even in the queue."""
        if self._limiter.available_tokens <= 0 and (self.wait_ms == 0 or self.waiting >= self.size):
            raise self._overloaded()

    async def acquire(self, deadline: Deadline) -> Permit:
        """A permit, within the wait budget and the deadline. Raises Overloaded.

        Safe under cancellation: the limiter gives a place back that a cancelled waiter was handed.
        """
        self.check_queue(deadline)
        permit = Permit(self)
        try:
            self._limiter.acquire_on_behalf_of_nowait(permit)
        except anyio.WouldBlock:
            with anyio.move_on_after(deadline.remaining(self.wait_ms)):
                await self._limiter.acquire_on_behalf_of(permit)
                return permit
            raise self._overloaded() from None
        return permit

    def take_back(self, permit: Permit) -> None:
        self._limiter.release_on_behalf_of(permit)

    def _overloaded(self) -> Overloaded:
        return Overloaded(self._name, retry_after_ms=max(self.wait_ms, 1000))
