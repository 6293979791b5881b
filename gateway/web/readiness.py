"""Readiness: whether every part answers, remembered for a moment so that asking costs nothing."""

import time
from collections.abc import Awaitable, Callable, Mapping

import anyio

#: whether one part answers right now
Check = Callable[[], Awaitable[bool]]

_REMEMBERED_S = 1.0


class Readiness:
    """Runs the checks at most once a second, however many ask; never raises what a part raises."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks
        self._lock = anyio.Lock()
        self._parts: dict[str, bool] = {}
        self._until = float("-inf")

    async def parts(self) -> dict[str, bool]:
        async with self._lock:
            if time.monotonic() >= self._until:
                self._parts = {name: await check() for name, check in self._checks.items()}
                self._until = time.monotonic() + _REMEMBERED_S
            return dict(self._parts)
