"""Batches: questions of one search that wait at the same moment go to the store as one call.

Most of what a search costs is a cost of the call, whatever number of questions it brings: on Lite a loop over
all rows under its one GIL, on a server the way there and back. So a few calls of one search are under way at
a time, and whoever asks meanwhile goes with the next one. Nobody waits for company.

Only questions that agree in the whole forced filter, in the place and in everything else (``Search``) share a
call, so each is asked exactly what it would be asked alone; each gets its own hits, by position, and checks
them against its own query. A call that has begun takes nobody along, and no hits are kept. So what a question
gets was read after it was asked and before it was answered: of what was revoked or sealed before it asked, it
sees what a call of its own would see.
"""

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import grpc
from pymilvus import MilvusException

from gateway.adapters.milvus.client import concerns_every_call, unanswered, uninterrupted
from gateway.adapters.milvus.search import Rows, Search
from gateway.context import Deadline
from gateway.errors import VectorStoreUnavailable

#: a call's rows are read out on the event loop, which every stream waits for meanwhile
_MOST_ROWS = 512
_CLOSE_CAP_S = 2.0


class _Member:
    """One question, and who waits for its hits."""

    def __init__(self, question: object, deadline: Deadline) -> None:
        self.question = question
        self.deadline = deadline
        self.found: asyncio.Future[Rows] = asyncio.get_running_loop().create_future()

    @property
    def waits(self) -> bool:
        return not self.found.done()

    def tell(self, rows: Rows) -> None:
        if self.waits:
            self.found.set_result(rows)

    def fail(self, error: BaseException) -> None:
        if self.waits:
            self.found.set_exception(error)


class _Batch:
    """Questions that go together, and the task that asks them."""

    call: asyncio.Task[None]

    def __init__(self) -> None:
        self._members: list[_Member] = []

    def __len__(self) -> int:
        return len(self._members)

    def join(self, question: object, deadline: Deadline) -> _Member:
        member = _Member(question, deadline)
        self._members.append(member)
        return member

    @property
    def waiting(self) -> list[_Member]:
        return [member for member in self._members if member.waits]


class _Line:
    """The turns of one search's calls, and the batch that still takes questions along."""

    def __init__(self, at_once: int) -> None:
        self.turns = asyncio.Semaphore(at_once)
        self.open: _Batch | None = None

    def close(self, batch: _Batch) -> None:
        """From here on it takes nobody along."""
        if self.open is batch:
            self.open = None


class Batches:
    """Of one store. ``most`` questions go in a call; with 1, each is a call of its own, at once.

    ``on_call`` is told of each call how many questions it brings.
    """

    def __init__(self, most: int, on_call: Callable[[int], None] = lambda _: None) -> None:
        self.on_call = on_call
        self._most = most
        self._lines: WeakValueDictionary[Search, _Line] = WeakValueDictionary()
        self._calls: set[asyncio.Task[None]] = set()
        self._closed = False

    async def ask(self, search: Search, question: object, deadline: Deadline) -> Rows:
        """The question's hits. Bound it yourself: the call goes on while anybody waits for it.

        Raises what ``search.ask`` raises, VectorStoreUnavailable once all is closed.
        """
        if self._closed:
            raise VectorStoreUnavailable()
        most = min(self._most, _MOST_ROWS // search.limit)
        if most <= 1:
            return (await self._asked(search, [question], deadline.remaining()))[0]
        line = self._line(search)
        batch = line.open or self._opened(search, line)
        member = batch.join(question, deadline)
        if len(batch) >= most:
            line.close(batch)
        try:
            return await member.found
        finally:
            if not batch.waiting:
                line.close(batch)
                batch.call.cancel()

    async def aclose(self) -> None:
        """Whoever still waits, or comes later, gets VectorStoreUnavailable."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CLOSE_CAP_S)

    def _line(self, search: Search) -> _Line:
        line = self._lines.get(search)
        if line is None:
            line = self._lines[search] = _Line(search.connection.layout.searches_at_once)
        return line

    def _opened(self, search: Search, line: _Line) -> _Batch:
        """A batch whose call begins when it is its turn, and no sooner than all that is ready now has run:
        what is asked in the same moment goes with it.
        """
        batch = line.open = _Batch()
        batch.call = asyncio.create_task(self._call(search, line, batch))
        self._calls.add(batch.call)
        batch.call.add_done_callback(lambda call: self._ended(line, batch, call))
        return batch

    def _ended(self, line: _Line, batch: _Batch, call: asyncio.Task[None]) -> None:
        line.close(batch)
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        for member in batch.waiting:
            member.fail(VectorStoreUnavailable() if error is None else error)

    async def _call(self, search: Search, line: _Line, batch: _Batch) -> None:
        async with line.turns:
            line.close(batch)
            if waiting := batch.waiting:
                await self._answer(search, waiting)

    async def _answer(self, search: Search, members: Sequence[_Member]) -> None:
        """Of several that the store refuses, each is asked alone: one bad question hurts nobody else.

        Raises what leaves all that still wait without an answer.
        """
        timeout_s = max(member.deadline.remaining() for member in members)
        try:
            found = await self._asked(search, [member.question for member in members], timeout_s)
        except (MilvusException, grpc.RpcError) as error:
            if len(members) == 1 or unanswered(error) or concerns_every_call(error):
                raise
        else:
            for member, rows in zip(members, found, strict=True):
                member.tell(rows)
            return
        for member in members:
            if member.waits:
                await self._answer_alone(search, member)

    async def _answer_alone(self, search: Search, member: _Member) -> None:
        """Raises what the others needn't be asked after."""
        try:
            (rows,) = await self._asked(search, [member.question], member.deadline.remaining())
        except (MilvusException, grpc.RpcError) as error:
            if concerns_every_call(error):
                raise
            member.fail(error)
        else:
            member.tell(rows)

    async def _asked(self, search: Search, questions: Sequence[object], timeout_s: float) -> list[Rows]:
        self.on_call(len(questions))
        return await uninterrupted(search.ask(questions, timeout_s))
