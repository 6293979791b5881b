"""Returns: places given back behind their holders' backs, again and again until Redis has heard it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import islice

from gateway.adapters.redis.places import Place
from gateway.errors import QuotaUnavailable

#: places given back side by side
_AT_ONCE = 8
_AGAIN_S = 0.2

#: tokens used, or a word of the script
Used = int | str


class Returns:
    """What can't be given back for ``keep_s`` is dropped: its lease has run out by then."""

    def __init__(self, give_back: Callable[[Place, Used], Awaitable[object]], keep_s: float) -> None:
        self._give_back = give_back
        self._keep_s = keep_s
        self._pending: dict[Place, tuple[Used, float]] = {}
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, place: Place, used: Used) -> None:
        if self._closed:
            return
        self._pending.setdefault(place, (used, time.monotonic() + self._keep_s))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def __contains__(self, place: Place) -> bool:
        """It is on its way back."""
        return place in self._pending

    async def aclose(self, within_s: float) -> None:
        self._closed = True
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=within_s)
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._pending:
            batch = list(islice(self._pending.items(), _AT_ONCE))
            heard = await asyncio.gather(*(self._try(place, *what) for place, what in batch))
            for (place, what), done in zip(batch, heard, strict=True):
                del self._pending[place]
                if not done:  # behind the others: one that Redis refuses holds up none of them
                    self._pending[place] = what
            if not all(heard):
                await asyncio.sleep(_AGAIN_S)

    async def _try(self, place: Place, used: Used, until: float) -> bool:
        """True when there is nothing left to do for this place."""
        if time.monotonic() >= until:
            return True
        try:
            await self._give_back(place, used)
        except QuotaUnavailable:
            return False
        return True
