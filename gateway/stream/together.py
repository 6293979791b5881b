"""Together: questions that come while one of their kind is under way are asked as one, after it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import anyio
import anyio.abc

from gateway.errors import GatewayError

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """Asks ``question`` for many keys at once; it answers with one value for each, in their order.

    Nobody is answered by a question that began before he asked. One that fails fails all who asked it. It is
    asked in ``tasks``, while it has one of the ``places``.
    """

    def __init__(
        self,
        question: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        tasks: anyio.abc.TaskGroup,
        places: anyio.CapacityLimiter,
    ) -> None:
        self._question = question
        self._tasks = tasks
        self._places = places
        self._waiting: list[_Asked[K, V]] = []
        self._under_way = False

    async def ask(self, keys: Sequence[K]) -> Sequence[V]:
        """Raises the GatewayError of ``question``."""
        asked = _Asked[K, V](keys)
        self._waiting.append(asked)
        if not self._under_way:
            self._under_way = True
            self._tasks.start_soon(self._answer)
        await asked.over.wait()
        if asked.error is not None:
            raise asked.error
        return asked.answers

    async def _answer(self) -> None:
        while self._waiting:
            async with self._places:
                batch, self._waiting = self._waiting, []
                await self._answer_all(batch)
        self._under_way = False

    async def _answer_all(self, batch: "Sequence[_Asked[K, V]]") -> None:
        try:
            answers = await self._question([key for asked in batch for key in asked.keys])
        except GatewayError as error:
            for asked in batch:
                asked.fail(error)
        else:
            start = 0
            for asked in batch:
                asked.take(answers[start : start + len(asked.keys)])
                start += len(asked.keys)


class _Asked(Generic[K, V]):
    """The keys of one who asks, and what he gets."""

    def __init__(self, keys: Sequence[K]) -> None:
        self.keys = keys
        self.over = anyio.Event()
        self.answers: Sequence[V] = ()
        self.error: GatewayError | None = None

    def take(self, answers: Sequence[V]) -> None:
        self.answers = answers
        self.over.set()

    def fail(self, error: GatewayError) -> None:
        self.error = error
        self.over.set()
