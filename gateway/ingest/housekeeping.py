"""Housekeeping: forgets the tasks, keys and traces of long ago, so that the catalog doesn't grow for ever."""

from collections.abc import Awaitable, Callable, Sequence

import anyio

from gateway.errors import Unavailable
from gateway.ingest.catalog import TaskStore
from gateway.observe.logging import get_logger

_DAY_S = 86_400.0
_EVERY_S = 3600.0
#: between two short transactions while there is more to forget
_PAUSE_S = 0.05


#: says how many things it took; 0 = there are no more
Purge = Callable[[], Awaitable[int]]


class Housekeeping:
    """Runs beside every worker; several at once do the same work in turn."""

    def __init__(
        self,
        tasks: TaskStore,
        *,
        key_days: float,
        task_days: float,
        purges: Sequence[Purge] = (),
    ) -> None:
        """``purges`` take what else is too old, some at a time."""
        self._tasks = tasks
        self._purges = purges
        self._keys_s = key_days * _DAY_S
        self._tasks_s = task_days * _DAY_S
        self._log = get_logger("ingest.housekeeping")

    async def run(self) -> None:
        """Once an hour, until cancelled."""
        while True:
            try:
                forgotten = await self.forget()
            except Unavailable as error:
                self._log.warning("housekeeping.failed", code=error.code)
            else:
                self._log.info("housekeeping.done", tasks=forgotten)
            await anyio.sleep(_EVERY_S)

    async def forget(self) -> int:
        """How many tasks are gone. Raises CatalogUnavailable."""
        for purge in self._purges:
            await _all(purge)
        return await _all(lambda: self._tasks.purge(self._keys_s, self._tasks_s))


async def _all(purge: Purge) -> int:
    """What it takes in all, until there is no more."""
    forgotten = 0
    while gone := await purge():
        forgotten += gone
        await anyio.sleep(_PAUSE_S)
    return forgotten
