"""Installations to back up and to restore into: on embedded parts, and on servers."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.adapters.memory.vectors import MemoryVectors
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog, open_postgres
from gateway.bootstrap.journal import journal_writer
from gateway.bootstrap.keeping import objects_of
from gateway.ingest.journal import JournalOutbox
from gateway.settings import Settings
from tests.integration.import_world import Clock, ImportWorld

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer
    from tests.harness.s3 import S3Server

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Sites:
    """Where installations get their parts from. With ``postgres`` and ``s3`` these, else embedded ones.

    The vector store is always Milvus Lite: what a backup of the others means doesn't depend on it.
    """

    folder: Path
    postgres: "PostgresServer | None" = None
    s3: "S3Server | None" = None

    def fresh(self, journal: str) -> Settings:
        """The settings of an empty installation."""
        given: dict[str, object] = {
            "data_dir": self.folder / f"site-{next(_numbers)}",
            "journal_url": journal,
            "catalog_cap_ms": 10_000,
        }
        if self.postgres is not None:
            given["database_url"] = self.postgres.migrated()
        if self.s3 is not None:
            given["object_store_url"] = self.s3.fresh_bucket()
        return Settings(**given)  # type: ignore[arg-type]  # pydantic checks each one

    def store(self, name: str) -> str:
        """An empty place for backups or for a journal."""
        return str(self.folder / name) if self.s3 is None else self.s3.fresh_bucket()


def catalog_of(settings: Settings, clock: Clock | None = None) -> AbstractAsyncContextManager[SqlCatalog]:
    clock = clock or Clock()
    if settings.database_url is not None:
        url = settings.database_url.get_secret_value()
        return open_postgres(url, connections=4, cap_s=10)
    settings.data_dir.mkdir(mode=0o700, exist_ok=True)
    return open_catalog(settings.data_dir / "catalog.db", clock=clock)


@asynccontextmanager
async def installation(settings: Settings) -> AsyncIterator[ImportWorld]:
    """The import path over it. Rows are kept in memory: a backup doesn't hold them."""
    clock = Clock()
    async with catalog_of(settings, clock) as catalog:
        yield ImportWorld(catalog, MemoryVectors(), objects_of(settings), clock, real=True)


async def journal_all(settings: Settings, catalog: JournalOutbox) -> int:
    """Sends every act on; how many there were."""
    writer, sent = journal_writer(settings, catalog), 0
    while step := await writer.step():
        sent += step
    return sent
