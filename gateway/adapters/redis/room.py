"""Room: how much of what this process has written to Redis may be there at a time."""

import heapq
import time
from collections.abc import Callable


class Room:
    """Counts what was written until its time is over, also what has gone before: Redis isn't asked."""

    def __init__(self, most_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._left = most_bytes
        self._clock = clock
        self._taken: list[tuple[float, int]] = []

    def take(self, size: int, ttl_s: float) -> bool:
        """False, and nothing is taken, when there isn't so much."""
        now = self._clock()
        while self._taken and self._taken[0][0] <= now:
            self._left += heapq.heappop(self._taken)[1]
        if size > self._left:
            return False
        self._left -= size
        heapq.heappush(self._taken, (now + ttl_s, size))
        return True
