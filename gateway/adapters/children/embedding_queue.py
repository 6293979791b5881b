"""EmbeddingQueue: questions before one child, where who gives up waiting takes no work from the others."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, EmbedderUnavailable, GatewayError
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.embedding import Embedder, Vector

#: questions that are embedded as one batch, which costs less than each alone
_AT_ONCE = 8
#: for a batch, and the start of a child before it; a child that takes longer is replaced
_CAP_MS = 40_000
_PING_MS = 1000


class EmbeddingProcess(Embedder, Protocol):
    """An embedder in a child of ours."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """The texts of one caller, and what he waits for; done without a result once he has gone."""

    texts: tuple[str, ...]
    vectors: "asyncio.Future[Sequence[Vector]]"


class EmbeddingQueue:
    """An Embedder over ``child``, which is asked in a task of its own, and closed with the queue.

    A cancel or a passed deadline leaves the child at its work, so that one caller can't make the next ones
    wait for a new child. A batch that fails is asked again caller by caller: a text that ends the child fails
    the caller who sent it.
    """

    def __init__(self, child: EmbeddingProcess) -> None:
        self._child = child
        self._waiting: list[_Asked] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def space(self) -> EmbeddingSpace:
        return self._child.space

    @property
    def max_sensitivity(self) -> int:
        return self._child.max_sensitivity

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> list[Vector]:
        """See Embedder. The deadline covers waiting and the start of a child."""
        seconds = deadline.budget("embedding", math.inf)
        if self._closed:
            raise EmbedderUnavailable("the embedding process is closed")
        if not texts:
            return []
        asked = _Asked(tuple(texts), asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            with anyio.fail_after(seconds):
                return list(await asked.vectors)
        except TimeoutError:
            raise DeadlineExceeded("embedding") from None

    async def ping(self) -> bool:
        """Whether a word is embedded within a second; for readiness."""
        try:
            await self.embed(["ready"], Deadline.after(_PING_MS))
        except (EmbedderUnavailable, DeadlineExceeded):
            return False
        return True

    async def aclose(self) -> None:
        """Who still waits gets EmbedderUnavailable, and so does everybody later."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._send_away()  # a task that hadn't begun does nothing
        await self._child.aclose()

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:_AT_ONCE]
                await self._answer([asked for asked in batch if not asked.vectors.done()])
                del self._waiting[: len(batch)]
        finally:
            self._send_away()

    def _send_away(self) -> None:
        """Everybody who isn't answered yet, at the end or after a defect: nobody else would tell him."""
        for asked in self._waiting:
            _fail(asked, EmbedderUnavailable("the embedding process is closed"))
        self._waiting.clear()

    async def _answer(self, batch: Sequence[_Asked]) -> None:
        if not batch:
            return
        try:
            vectors = await self._child.embed(
                [text for asked in batch for text in asked.texts], Deadline.after(_CAP_MS)
            )
        except GatewayError:
            await self._answer_each(batch)
            return
        start = 0
        for asked in batch:
            found = vectors[start : start + len(asked.texts)]
            start += len(asked.texts)
            if not asked.vectors.done():
                asked.vectors.set_result(found)

    async def _answer_each(self, batch: Sequence[_Asked]) -> None:
        if len(batch) == 1:
            _fail(batch[0], EmbedderUnavailable("the embedding process could not embed this text"))
            return
        for asked in batch:
            if not asked.vectors.done():
                await self._answer([asked])


def _fail(asked: _Asked, error: EmbedderUnavailable) -> None:
    if not asked.vectors.done():
        asked.vectors.set_exception(error)
        asked.vectors.exception()  # he may be cancelled before he sees it
