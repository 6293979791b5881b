"""Counting: a revision's term statistics are kept and dropped in pieces, lest others wait for the writer.

Nobody reads a revision while its release is being built, and one that is reclaimed counts nothing at once:
so nobody sees half of them.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from gateway.adapters.sql import lexicon
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.tables import releases
from gateway.errors import NotFound
from gateway.ingest.plan import ClassTerms
from gateway.ingest.task import TaskClaim

#: rows that one transaction writes or deletes
PIECE = 1000


async def store(
    database: Database,
    claim: TaskClaim,
    kb_revision: str,
    classes: Sequence[ClassTerms],
    *,
    size: int = PIECE,
) -> None:
    """Replaces whatever was counted for the revision before. Raises StaleFence, NotFound."""

    def drop(connection: Connection, now: float) -> bool:
        _check(connection, claim, kb_revision)
        return lexicon.drop_piece(connection, kb_revision, size)

    def insert(connection: Connection, piece: lexicon.Piece) -> None:
        _check(connection, claim, kb_revision)
        lexicon.insert_piece(connection, piece)

    while await database.write(drop):
        pass
    for piece in lexicon.pieces(kb_revision, classes, size):
        await database.write(lambda c, now: insert(c, piece))  # noqa: B023 - awaited at once


def _check(connection: Connection, claim: TaskClaim, kb_revision: str) -> None:
    held(connection, claim)
    mine = select(releases.c.release_id).where(
        releases.c.kb_revision == kb_revision, releases.c.task_id == claim.task_id
    )
    if connection.execute(mine).one_or_none() is None:
        raise NotFound()


async def drop(database: Database, kb_revision: str, *, size: int = PIECE) -> None:
    """Of a reclaimed revision. Whoever stops here leaves it due for the next reclaim."""
    while await database.write(lambda c, now: lexicon.drop_piece(c, kb_revision, size)):
        pass
