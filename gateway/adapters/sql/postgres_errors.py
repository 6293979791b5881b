"""PostgreSQL's errors: what each means for a transaction, and their translation, by SQLSTATE and class."""

import contextlib
from collections.abc import Iterator

import asyncpg
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gateway.errors import CatalogUnavailable, InvalidField

#: everything that a driver, its pool or the network may raise
DATABASE_ERRORS = (
    SQLAlchemyError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
#: two writers met; the database has rolled this one back
_RACES = frozenset(
    {
        asyncpg.SerializationError.sqlstate,
        asyncpg.DeadlockDetectedError.sqlstate,
        asyncpg.UniqueViolationError.sqlstate,
    }
)
#: the server ended the connection: operator intervention and connection exceptions
_GONE = ("57P", "08")
_DATA_EXCEPTION = "22"


class DatabaseFailure(Exception):
    """What may be logged of a driver's error: its kind. The server's messages quote rows."""

    def __init__(self, error: BaseException) -> None:
        cause = (error.orig if isinstance(error, DBAPIError) else error) or error
        kind = type(cause.__cause__ or cause).__name__
        super().__init__(f"{kind} {sqlstate(error)}".strip())


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Driver errors become CatalogUnavailable, values no column can hold InvalidField."""
    try:
        yield
    except (*DATABASE_ERRORS, UnicodeEncodeError, OverflowError) as error:
        if _is_unstorable(error):
            raise InvalidField("a value can't be stored: broken text, or a number out of range") from None
        raise CatalogUnavailable() from DatabaseFailure(error)


def sqlstate(error: BaseException) -> str:
    """Five characters; empty for an error that no server sent."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlstate", None) or ""


def is_race(error: BaseException) -> bool:
    """Whether the transaction was rolled back for another one's sake, and may succeed when run again."""
    return sqlstate(error) in _RACES


def is_lost(error: BaseException) -> bool:
    """Whether a connection that was open has died under the statement."""
    return isinstance(error, DBAPIError) and error.connection_invalidated


def note_lost(context: ExceptionContext) -> None:
    """Tells SQLAlchemy which errors end a connection, so that the pool drops all that died with it."""
    if sqlstate(context.original_exception).startswith(_GONE):
        context.is_disconnect = True


def _is_unstorable(error: BaseException) -> bool:
    """By the server's word or the driver's, which encodes values before it sends them."""
    if isinstance(error, UnicodeEncodeError | OverflowError) or sqlstate(error).startswith(_DATA_EXCEPTION):
        return True
    cause = error.__cause__ if isinstance(error, DBAPIError) else error
    while cause is not None and not isinstance(cause, asyncpg.InterfaceError):
        cause = cause.__cause__
    # The driver's class for it is private, but for this: a usage error that is a ValueError as well.
    return isinstance(cause, ValueError) and not isinstance(cause, asyncpg.ClientConfigurationError)
