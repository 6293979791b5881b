"""Coalescing: one query answers everybody who waits for its kind, and nobody an older one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from itertools import islice
from typing import Generic, TypeVar

from gateway.errors import CatalogUnavailable, InvalidField

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: keys in one query
_MOST_KEYS = 256
#: queries of one kind under way at once: who comes during the first needn't wait for its end
_FLIGHTS = 2


class Coalescer(Generic[K, V]):
    """Asks ``query`` for many keys at once; it answers with one value for each.

    A caller is answered only by a query that started after he asked. Cancelling one caller disturbs
    no other, and a key that can't be asked for fails its own callers only.
    """

    def __init__(self, query: Callable[[tuple[K, ...]], Awaitable[Mapping[K, V]]]) -> None:
        self._query = query
        self._waiting: dict[K, asyncio.Future[V]] = {}
        self._flying: set[asyncio.Task[None]] = set()
        self._boarding = False

    async def ask(self, key: K) -> V:
        """Raises what ``query`` raises: CatalogUnavailable, InvalidField."""
        answer = self._waiting.get(key)
        if answer is None:
            answer = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._depart()
        try:
            return await asyncio.shield(answer)
        except (CatalogUnavailable, InvalidField) as shared:
            raise type(shared)(shared.detail) from shared  # each caller's own, with his own traceback

    def _depart(self) -> None:
        """The next flight, when there is somebody for it; it takes off when this turn of the loop ends."""
        if self._waiting and not self._boarding and len(self._flying) < _FLIGHTS:
            self._boarding = True
            flight = asyncio.get_running_loop().create_task(self._fly())
            self._flying.add(flight)
            flight.add_done_callback(self._land)

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flying.discard(flight)
        self._depart()

    async def _fly(self) -> None:
        self._boarding = False
        on_board = {key: self._waiting.pop(key) for key in tuple(islice(self._waiting, _MOST_KEYS))}
        self._depart()
        try:
            await self._answer(on_board)
        finally:
            _fail(on_board, CatalogUnavailable())  # whoever has no answer yet waits no longer

    async def _answer(self, on_board: Mapping[K, asyncio.Future[V]]) -> None:
        try:
            found = await self._query(tuple(on_board))
        except CatalogUnavailable as error:
            _fail(on_board, error)
        except InvalidField as error:
            if len(on_board) == 1:
                _fail(on_board, error)
            else:
                for key, answer in on_board.items():
                    await self._answer({key: answer})
        else:
            for key, answer in on_board.items():
                answer.set_result(found[key])


def _fail(on_board: Mapping[K, asyncio.Future[V]], error: Exception) -> None:
    for answer in on_board.values():
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # seen: its callers may all have been cancelled
