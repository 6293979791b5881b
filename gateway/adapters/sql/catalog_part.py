"""SqlPart: what the parts of the SQL catalog share. What they do is done in short transactions."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sqlalchemy import Connection

from gateway.access.act import Act
from gateway.adapters.sql import acts
from gateway.adapters.sql.database import Database


async def forgotten(some: Callable[[], Awaitable[int]]) -> int:
    """How many things ``some`` takes in all, asked until there are no more: each time a short transaction."""
    taken = 0
    while gone := await some():
        taken += gone
    return taken


class SqlPart:
    """A part of the catalog over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ask = database.ask
        self._look = database.look
        self._read = database.read
        self._browse = database.browse
        self._write = database.write

    async def _act(
        self,
        act: Act | None,
        kept: Callable[[Mapping[str, Any]], acts.Answer],
        change: Callable[[Connection, float], acts.Answer],
    ) -> acts.Answer:
        """Durable: a power cut must not bring back a release, or an ACL, that was left behind."""
        return await self._write(
            lambda c, now: acts.once(c, now, act, kept, lambda: change(c, now)), durable=True
        )
