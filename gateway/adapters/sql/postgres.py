"""The PostgreSQL database: pools with bounds, serializable writes, shared reads.

Writes are SERIALIZABLE, so that each means what it means on SQLite, which has a single writer; claims of
tasks aren't, for their row locks and a unique index hold all that has to. A write that met another is run
again, then in turn with all others that are run again. Reads that answer requests are single statements;
those of every request are shared by their callers. Every commit waits for the disk.

A call runs in a task of its own. Whoever is cancelled or has waited too long leaves it, and it ends by
itself: by the server's statement timeout, or, when the server says nothing, by cutting the connection.
No transaction is ever cancelled half-way, so none can leave its connection in a state nobody knows.
"""

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import anyio
import asyncpg
from sqlalchemy import URL, Connection, event, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.adapters.sql.coalesce import Coalescer
from gateway.adapters.sql.database import Question
from gateway.adapters.sql.postgres_engine import engine_of
from gateway.adapters.sql.postgres_errors import (
    DATABASE_ERRORS,
    DatabaseFailure,
    is_lost,
    is_race,
    translated_errors,
)
from gateway.adapters.sql.server import database_time
from gateway.adapters.sql.tables import meta
from gateway.errors import CatalogUnavailable

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: how long one write or listing may take on a server that answers
_WORK_CAP_S = 120.0
#: runs of one write that keeps meeting others
_RUNS = 10
_CLOSE_S = 5.0
_DISPOSE_S = 1.0
#: a connection is cut this much after its server should have ended the statement
_GRACE = 1.25
_SNAPSHOT = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
#: comes before the transaction's snapshot is taken: LOCK TABLE takes none, any SELECT would
_TAKE_TURN = text(f"LOCK TABLE {meta.name} IN SHARE ROW EXCLUSIVE MODE")


class PostgresDatabase:
    """Half of the ``connections`` answer requests, half write and list: neither waits behind the other.

    ``cap_s`` bounds every read of a request, and every wait for a connection or for the server's first
    answer. ``clock`` gives seconds since the epoch; None is the server's.
    """

    def __init__(
        self, url: URL, *, connections: int, cap_s: float, clock: Callable[[], float] | None = None
    ) -> None:
        self._cap_s = cap_s
        self._work_cap_s = max(cap_s, _WORK_CAP_S)
        self._clock = clock
        self._closed = False
        self._running: set[asyncio.Task[Any]] = set()
        self._connected: weakref.WeakSet[asyncpg.Connection[Any]] = weakref.WeakSet()
        self._questions: dict[Any, Coalescer[Any, Any]] = {}
        self._readers = self._pool(url, max(1, connections // 2), cap_s)  # 0 would mean no bound
        self._workers = self._pool(url, connections - connections // 2, self._work_cap_s)
        self._looks = self._readers.execution_options(isolation_level="AUTOCOMMIT")
        self._snapshots = self._readers.execution_options(**_SNAPSHOT)
        self._listings = self._workers.execution_options(**_SNAPSHOT)
        self._writes = self._workers.execution_options(isolation_level="SERIALIZABLE")
        self._loose_writes = self._workers.execution_options(isolation_level="READ COMMITTED")

    def _pool(self, url: URL, size: int, cap_s: float) -> AsyncEngine:
        milliseconds = str(max(1, int(cap_s * 1000)))
        engine = engine_of(
            url,
            {
                "synchronous_commit": "on",
                "statement_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds,
            },
            connect_s=self._cap_s,
            answer_s=cap_s * _GRACE,
            pool_size=size,
            max_overflow=0,
            pool_timeout=self._cap_s,
        )
        event.listen(engine.sync_engine, "connect", self._note_connected)
        return engine

    def _note_connected(self, connection: Any, record: object) -> None:
        self._connected.add(connection.driver_connection)

    async def write(
        self, work: Callable[[Connection, float], T], *, durable: bool = False, loosely: bool = False
    ) -> T:
        def transaction(connection: Connection, now: float) -> T:
            result = work(connection, now)
            _commit(connection)
            return result

        return await self._long(self._loose_writes if loosely else self._writes, transaction)

    async def browse(self, work: Callable[[Connection], T]) -> T:
        return await self._long(self._listings, lambda connection, now: work(connection))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._short(self._snapshots, work)

    async def look(self, work: Callable[[Connection], T]) -> T:
        return await self._short(self._looks, work)

    async def ask(self, question: Question[K, V], key: K) -> V:
        shared: Coalescer[K, V] | None = self._questions.get(question)
        if shared is None:
            shared = self._questions[question] = Coalescer(partial(self._answers, question))
        try:
            async with asyncio.timeout(self._cap_s):
                return await shared.ask(key)
        except TimeoutError as error:
            raise CatalogUnavailable("the database did not answer in time") from error

    async def _answers(self, question: Question[K, V], keys: tuple[K, ...]) -> Mapping[K, V]:
        return await self.look(lambda connection: question(connection, keys))

    async def aclose(self) -> None:
        self._closed = True
        with anyio.CancelScope(shield=True):
            await _settled(self._running, _CLOSE_S)
            with anyio.move_on_after(_DISPOSE_S):
                await self._readers.dispose()
                await self._workers.dispose()
            for connection in tuple(self._connected):
                connection.terminate()
            await _settled(self._running, _DISPOSE_S)

    # calls: a task each, which its caller may leave

    async def _short(self, engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
        return await self._result(self._start(self._observe(engine, work)), self._cap_s)

    async def _long(self, engine: AsyncEngine, work: Callable[[Connection, float], T]) -> T:
        """The server's first answer is due within ``cap_s``; without it nothing happens later either."""
        begun = asyncio.get_running_loop().create_future()
        task = self._start(self._work(engine, work, begun))
        await asyncio.wait({task, begun}, timeout=self._cap_s, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and begun.cancel():
            raise CatalogUnavailable("the database did not answer in time")
        return await self._result(task, self._work_cap_s)

    def _start(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(self._translated(call))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen: its caller may have left

    async def _translated(self, call: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            call.close()
            raise CatalogUnavailable("the catalog is closed")
        with translated_errors():
            return await call

    async def _result(self, task: asyncio.Task[T], cap_s: float) -> T:
        await asyncio.wait({task}, timeout=cap_s)
        if not task.done():
            raise CatalogUnavailable("the database did not answer in time")
        return task.result()

    # what the tasks do

    async def _observe(self, engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
        """Once more when the connection turns out to be dead, so that a restart of the server is no error."""
        last = _now() + self._cap_s
        try:
            return await self._on_connection(engine, work)
        except DATABASE_ERRORS as error:
            if not is_lost(error) or _now() >= last:
                raise
        return await self._on_connection(engine, work)

    async def _on_connection(self, engine: AsyncEngine, work: Callable[[Connection], T]) -> T:
        async with _leashed(engine, self._cap_s) as (connection, _):
            return await connection.run_sync(work)

    async def _work(
        self, engine: AsyncEngine, work: Callable[[Connection, float], T], begun: asyncio.Future[None]
    ) -> T:
        """Again when it met another writer or its connection died: both mean that nothing is written."""
        last = _now() + self._work_cap_s
        in_turn = False
        for _ in range(_RUNS - 1):
            try:
                return await self._run(engine, work, begun, in_turn)
            except DATABASE_ERRORS as error:
                met = is_race(error)
                if begun.cancelled() or _now() >= last or not (met or is_lost(error)):
                    raise
                in_turn |= met
        return await self._run(engine, work, begun, in_turn)

    async def _run(
        self,
        engine: AsyncEngine,
        work: Callable[[Connection, float], T],
        begun: asyncio.Future[None],
        in_turn: bool,
    ) -> T:
        def run(connection: Connection) -> T:
            if in_turn:
                connection.execute(_TAKE_TURN)
            now = database_time(connection)
            _announce(begun)
            leash.extend(self._work_cap_s)
            return work(connection, now if self._clock is None else self._clock())

        async with _leashed(engine, self._work_cap_s if begun.done() else self._cap_s) as (opened, leash):
            return await opened.run_sync(run)


def _announce(begun: asyncio.Future[None]) -> None:
    if begun.cancelled():
        raise CatalogUnavailable("the database answered when nobody waited any more")
    if not begun.done():
        begun.set_result(None)


def _commit(connection: Connection) -> None:
    """A connection that dies here leaves open whether the write happened: it must not be run again."""
    try:
        connection.commit()
    except DATABASE_ERRORS as error:
        if is_race(error):
            raise
        raise CatalogUnavailable("the database did not confirm a write") from DatabaseFailure(error)


class _Leash:
    """Cuts a connection that is used for too long: whatever waits on it fails at once."""

    def __init__(self, connection: "asyncpg.Connection[Any]", cap_s: float) -> None:
        self._connection = connection
        self._timer = self._set(cap_s)

    def _set(self, cap_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(cap_s * _GRACE, self._connection.terminate)

    def extend(self, cap_s: float) -> None:
        self._timer.cancel()
        self._timer = self._set(cap_s)

    def release(self) -> None:
        self._timer.cancel()


@contextlib.asynccontextmanager
async def _leashed(engine: AsyncEngine, cap_s: float) -> AsyncIterator[tuple[AsyncConnection, _Leash]]:
    """A connection of the pool; giving it back is on the leash too."""
    with contextlib.ExitStack() as stack:
        async with engine.connect() as connection:
            raw = await connection.get_raw_connection()
            leash = _Leash(raw.driver_connection, cap_s)
            stack.callback(leash.release)
            yield connection, leash


async def _settled(tasks: Collection[asyncio.Task[Any]], within_s: float) -> None:
    if tasks:
        await asyncio.wait(tuple(tasks), timeout=within_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
