"""A process of its own that opens a SQLite catalog, for tests that kill or refuse it."""

import sys
from pathlib import Path

import anyio
from sqlalchemy import Connection, text

from gateway.adapters.sql.catalog import open_catalog
from gateway.adapters.sql.sqlite import SqliteDatabase
from gateway.errors import ConfigurationError
from gateway.observe.logging import configure_logging
from tests.contract.catalog_world import import_of, upload


def main(path: str, mode: str) -> None:
    """``open``: exit 3 with the reason when refused. ``half``: stop inside a transaction.
    ``loop``: imports of ten documents without end, one printed line each.
    """
    configure_logging("warning")  # to stderr: stdout is what the test reads
    try:
        anyio.run(_run, Path(path), mode)
    except ConfigurationError as error:
        sys.stdout.write(error.reason + "\n")
        sys.exit(3)


async def _run(path: Path, mode: str) -> None:
    async with open_catalog(path) as catalog:
        if mode == "half":
            await SqliteDatabase(path, lambda: 0.0).write(_half)
        number = 0
        while mode == "loop":
            await catalog.accept_import(import_of(*(upload(f"{number}-{n}") for n in range(10))))
            number += 1
            _say("imported")


def _half(connection: Connection, now: float) -> None:
    connection.execute(text("INSERT INTO tenants VALUES ('acme', 0)"))
    for number in range(5000):  # more than the page cache holds, so that some of it is in the log
        connection.execute(
            text("INSERT INTO meta VALUES (:key, :value)"), {"key": f"{number}", "value": "x" * 2000}
        )
    _say("inside")
    sys.stdin.read()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
