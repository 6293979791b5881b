"""What the catalog needs of a database, whichever it is."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: one statement that answers for many keys at once; a key may come twice, each has a value
Question = Callable[[Connection, Sequence[K]], Mapping[K, V]]


class Database(Protocol):
    """Runs functions of a Connection, each as one transaction.

    Every method raises CatalogUnavailable, InvalidField for a value no column holds, or what the
    function raises; then nothing is written, but for a connection that died while a commit was on its
    way: nobody knows of that one. A function may be run again, so it does nothing but
    talk to its connection. Cancelling a call abandons its result only: the transaction still
    commits or rolls back whole.
    """

    async def write(
        self, work: Callable[[Connection, float], T], *, durable: bool = False, loosely: bool = False
    ) -> T:
        """``work(connection, now)`` as if nobody else were writing; ``durable`` survives a power cut.

        ``loosely``: others may write meanwhile, and the locks that the work takes keep what must hold. For
        what looks at many rows that change all the time, and would be run again for ever.
        """
        ...

    async def read(self, work: Callable[[Connection], T]) -> T:
        """``work(connection)`` on one snapshot that holds every write finished before the call."""
        ...

    async def look(self, work: Callable[[Connection], T]) -> T:
        """As ``read``, for a single statement."""
        ...

    async def browse(self, work: Callable[[Connection], T]) -> T:
        """As ``read``, for what may take long."""
        ...

    async def ask(self, question: Question[K, V], key: K) -> V:
        """As ``look``, for what every request asks: callers may share the statement."""
        ...

    async def aclose(self) -> None:
        """Lets running transactions end, for a bounded time, then closes every connection."""
        ...
