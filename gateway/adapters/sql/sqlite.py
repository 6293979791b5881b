"""The SQLite database: one writer thread, a few reading threads, and where its errors are translated.

A transaction runs whole inside one thread. Cancelling the task that awaits it abandons the result only:
the transaction still commits or rolls back, so a cancel can't leave the database locked.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from gateway.adapters.sql.database import Question
from gateway.adapters.sql.sqlite_memory import SqliteMemory, keep
from gateway.errors import CatalogUnavailable, InvalidField

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: how long the writer waits for a lock that another process holds
BUSY_TIMEOUT_S = 2.0
#: threads for the short reads of questions, and for listings: neither waits behind the other
_READERS = 2
_LISTERS = 2
_CLOSE_S = 10.0
#: of SQLite's primary result codes, which are the lowest eight bits of an error's
_TOLD = {
    sqlite3.SQLITE_FULL: "there is no room left on the catalog's disk",
    sqlite3.SQLITE_READONLY: "the catalog's file can't be written to",
}
_PRIMARY = 0xFF
#: versions before this one can damage a file when two connections write and checkpoint at once
_FIRST_WITHOUT_WAL_RESET_BUG = (3, 51, 3)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Driver errors become CatalogUnavailable, values no column can hold InvalidField."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise CatalogUnavailable(_why(error)) from error
    except (UnicodeEncodeError, OverflowError) as error:
        raise InvalidField("a value can't be stored: broken text, or a number out of range") from error


def _why(error: SQLAlchemyError | sqlite3.Error) -> str:
    """What an operator can do something about; empty for everything else."""
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlite_errorcode", None)  # the driver's own complaints have none
    return "" if code is None else _TOLD.get(code & _PRIMARY, "")


def has_wal_reset_bug() -> bool:
    """Whether this SQLite needs what we do anyway: one process, one writing connection, no mmap."""
    return sqlite3.sqlite_version_info < _FIRST_WITHOUT_WAL_RESET_BUG


def _connect(path: Path, *pragmas: str, timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path,
        timeout=timeout_s,
        isolation_level=None,  # we say BEGIN ourselves
        check_same_thread=False,  # closed by the thread that closes the pool
        cached_statements=256,
    )
    for pragma in ("foreign_keys = ON", "mmap_size = 0", "trusted_schema = OFF", *pragmas):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _engine(connect: Callable[[], sqlite3.Connection], size: int) -> Engine:
    return create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        hide_parameters=True,
    )


def writing_engine(path: Path) -> Engine:
    """Transactions take the write lock at their start; the option ``durable`` waits for the disk."""
    engine = _engine(lambda: _connect(path, "journal_mode = WAL", "synchronous = NORMAL"), 1)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        durable = connection.get_execution_options().get("durable", False)
        connection.exec_driver_sql(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reading_engine(path: Path) -> Engine:
    """Each transaction reads one snapshot and never waits for the writer."""
    engine = _engine(lambda: _connect(path, "query_only = ON"), _READERS + _LISTERS)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        driver = connection.connection.dbapi_connection
        assert driver is not None  # noqa: S101 - a connection that has begun has a driver's connection
        driver.cursor().execute("BEGIN")

    return engine


class SqliteDatabase:
    """Runs functions of a Connection in their threads. ``clock`` gives seconds since the epoch.

    A write that isn't ``durable`` is in the file's log but perhaps not on the disk when it returns.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._closed = False
        self._write_engine = writing_engine(path)
        self._read_engine = reading_engine(path)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="catalog-writer")
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="catalog-reader")
        self._listers = ThreadPoolExecutor(_LISTERS, thread_name_prefix="catalog-lister")
        self._reading = threading.local()
        self._open_readers: list[Connection] = []
        # used on the loop, so it never waits: without its word a thread reads
        self._memory = SqliteMemory(lambda: _connect(path, "query_only = ON", timeout_s=0))

    async def write(
        self, work: Callable[[Connection, float], T], *, durable: bool = False, loosely: bool = False
    ) -> T:
        return await self._run(self._writer, lambda: self._transaction(work, durable))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._readers, lambda: self._snapshot(work))

    async def browse(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._listers, lambda: self._snapshot(work))

    async def look(self, work: Callable[[Connection], T]) -> T:
        return await self.read(work)

    async def ask(self, question: Question[K, V], key: K) -> V:
        """From memory while nobody has written since it was read, else from a reader's thread."""
        self._refuse_closed()
        answers = self._memory.kept()
        asked = (question, key)
        if asked in answers:
            remembered: V = answers[asked]
            return remembered
        answer = (await self.read(lambda connection: question(connection, (key,))))[key]
        keep(answers, asked, answer)
        return answer

    async def aclose(self) -> None:
        """Lets running transactions end, for a bounded time, then closes every connection."""
        self._closed = True
        self._memory.close()
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await anyio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        self._refuse_closed()
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise CatalogUnavailable("the catalog is closed")

    def _transaction(self, work: Callable[[Connection, float], T], durable: bool) -> T:
        with translated_errors(), self._write_engine.connect() as connection:
            connection = connection.execution_options(durable=durable)
            with connection.begin():
                return work(connection, self._clock())

    def _snapshot(self, work: Callable[[Connection], T]) -> T:
        with translated_errors():
            connection = self._reader()
            try:
                with connection.begin():
                    return work(connection)
            except (SQLAlchemyError, sqlite3.Error):
                self._forget_reader(connection)
                raise

    def _reader(self) -> Connection:
        """This thread's own connection: going through the pool costs more than a hot read."""
        kept: Connection | None = getattr(self._reading, "connection", None)
        if kept is None:
            kept = self._reading.connection = self._read_engine.connect()
            self._open_readers.append(kept)
        return kept

    def _forget_reader(self, connection: Connection) -> None:
        """After an error of the driver nobody knows the connection's state: the next read opens another."""
        del self._reading.connection
        self._open_readers.remove(connection)
        connection.invalidate()
        connection.close()

    def _close(self) -> None:
        for threads in (self._readers, self._listers, self._writer):
            threads.shutdown()
        for connection in self._open_readers:
            connection.close()
        self._read_engine.dispose()
        self._write_engine.dispose()  # last: it folds the write-ahead log into the file
