"""What SQLite has answered, kept for as long as nobody has written: the reads that every request makes."""

import sqlite3
from collections.abc import Callable, Hashable
from typing import Any

#: answers kept at once; the ids of API keys are made up by whoever calls
_MAX_ANSWERS = 1024

Answers = dict[Hashable, Any]


class SqliteMemory:
    """Answers by what was asked, while ``PRAGMA data_version`` stays the same (some 10 µs, on the loop).

    No answer is older than the call that gets it. SQLite changes the number as soon as anybody commits, on
    any connection but the one that asks; this one never writes. Each call looks at it through ``kept``, and
    a read goes into the very dict that its call was given before the read began. So when a later call is
    given the same dict, nothing was committed between the two calls, and the answer is what a read would
    find now. After a commit there is a new dict, and a read still under way ends in one nobody looks at.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None
        self._answers: Answers = {}

    def kept(self) -> Answers:
        """What is known to hold at this moment; call it and look into it without an await in between.

        A new, empty dict when the database can't say whether it was written to.
        """
        version = self._read_version()
        if version is None or version != self._version:
            self._version = version
            self._answers = {}
        return self._answers

    def close(self) -> None:
        """Forgets everything. The numbers of two connections can't be compared."""
        connection, self._connection = self._connection, None
        self._version = None
        if connection is not None:
            connection.close()

    def _read_version(self) -> int | None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            row = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error:
            self.close()
            return None
        return int(row[0])


def keep(answers: Answers, asked: Hashable, answer: object) -> None:
    """The oldest answers make room."""
    while len(answers) >= _MAX_ANSWERS:
        del answers[next(iter(answers))]
    answers[asked] = answer
