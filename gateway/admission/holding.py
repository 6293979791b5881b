"""How long places are held, sans IO: from that, how long a newcomer would wait for one."""

#: each hold that ends moves the average by this share
_WEIGHT = 1 / 8


class HoldTime:
    """The usual hold of one bulkhead, in seconds.

    It is an exponentially weighted average of the holds that ended, but never less than what those that
    still run have lasted on average: where everything hangs, nothing ends that could say so.
    """

    def __init__(self) -> None:
        self._ended_s: float | None = None
        self._running = 0
        self._sum_of_starts = 0.0

    def began(self, at: float) -> None:
        self._running += 1
        self._sum_of_starts += at

    def ended(self, began_at: float, now: float) -> None:
        self._running -= 1
        self._sum_of_starts = self._sum_of_starts - began_at if self._running else 0.0
        lasted_s = now - began_at
        if self._ended_s is None:
            self._ended_s = lasted_s
        else:
            self._ended_s += _WEIGHT * (lasted_s - self._ended_s)

    def usual_s(self, now: float) -> float:
        """0 when nothing is known yet."""
        running_s = now - self._sum_of_starts / self._running if self._running else 0.0
        return max(running_s, self._ended_s or 0.0)

    def wait_s(self, now: float, places: int, ahead: int) -> float:
        """The expected wait behind ``ahead`` others while all places are taken.

        ``places`` holds of usual length end in one such length, so one ends each ``usual / places``.
        """
        return (ahead + 1) * self.usual_s(now) / places
