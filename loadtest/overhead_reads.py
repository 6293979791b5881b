"""``qa-gateway`` with a note of every SQLite statement: a line each, its time and its first word.

``python -m loadtest.overhead_reads NOTES serve …``. SQLite itself reports the statements, through the trace
callback of each connection, whoever made it; nothing of the gateway is replaced.
"""

import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from gateway.cli import main


def connecting(
    notes: TextIO, connect: Callable[..., sqlite3.Connection]
) -> Callable[..., sqlite3.Connection]:
    """``sqlite3.connect``, whose connections note what they run."""

    def note(statement: str) -> None:
        notes.write(f"{time.monotonic():.6f} {statement.split(None, 1)[0].upper()}\n")

    def noted(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_trace_callback(note)
        return connection

    return noted


if __name__ == "__main__":
    with open(sys.argv.pop(1), "w", buffering=1) as file:
        sqlite3.connect = connecting(file, sqlite3.connect)  # type: ignore[assignment]  # overloads in the stubs
        main()
