"""NOTIFY and LISTEN: whoever commits a change of rights, or an order, wakes every process at this database.

A hint only. Everybody polls as well, so a connection that is lost, or a pooler in between that keeps no
session, costs time and nothing else.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
from sqlalchemy import Connection

from gateway.adapters.sql.postgres_engine import connect, postgres_url
from gateway.adapters.sql.postgres_errors import DATABASE_ERRORS, DatabaseFailure
from gateway.adapters.sql.server import is_postgres
from gateway.observe.logging import get_logger

_CHANNEL = "gateway_rights"
_CONNECT_S = 5.0
#: a connection that says nothing is asked this often whether it is still there
_LOOK_S = 15.0
_PAUSES_S = (0.1, 0.5, 2.0, 5.0)

_log = get_logger("revocations")


def notify(connection: Connection) -> None:
    """Part of the transaction: it leaves with the commit, once however often it was said, or never."""
    if is_postgres(connection):
        connection.exec_driver_sql(f"NOTIFY {_CHANNEL}")


class PostgresHints:
    """Implements ChangeHints over one connection of its own. Raises ConfigurationError for a bad URL."""

    def __init__(self, url: str) -> None:
        self._url = postgres_url(url)

    async def follow(self, hinted: Callable[[], None]) -> None:
        failures = 0
        while True:
            try:
                async with self._listening(hinted) as lost:
                    if failures:
                        _log.info("revocations.hints_back", part="database")
                    failures = 0
                    hinted()  # nobody was listening until now
                    await lost.wait()
                cause = "the connection was closed"
            except DATABASE_ERRORS as error:
                cause = str(DatabaseFailure(error))
            if not failures:
                _log.warning("revocations.hints_lost", part="database", cause=cause)
            await asyncio.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1

    async def tell(self) -> None:
        """The database has told everybody when the change was committed."""

    @contextlib.asynccontextmanager
    async def _listening(self, hinted: Callable[[], None]) -> AsyncIterator["_Lost"]:
        opened = await connect(self._url, {}, connect_s=_CONNECT_S, answer_s=_CONNECT_S)
        try:
            lost = _Lost(opened)
            await opened.add_listener(_CHANNEL, lambda *_: hinted())
            yield lost
        finally:
            opened.terminate()  # at once, whatever state it is in; nothing is lost with it


class _Lost:
    """The end of a connection, noticed by itself or by asking."""

    def __init__(self, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection
        self._ended = asyncio.Event()
        connection.add_termination_listener(lambda _: self._ended.set())

    async def wait(self) -> None:
        """Returns when the connection was closed. Raises a DATABASE_ERROR when it doesn't answer."""
        while not self._ended.is_set():
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._ended.wait()
            except TimeoutError:
                await self._connection.execute("SELECT")
