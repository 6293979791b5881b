"""Restores: a backup into an empty installation, in steps of which each may be run again.

Objects come first, then the catalog in one transaction; from that moment it is there, without an
incarnation, and refuses every question. Then what the journal has seen since the backup is done again,
and the revisions that a release needs are written into the vector store. Whoever stops in between calls
the same again. Nothing is answered before an operator has confirmed it.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from anyio import to_thread

from gateway.errors import (
    BackupDamaged,
    ConfigurationError,
    DocumentUnusable,
    InvariantViolated,
    NotFound,
)
from gateway.ingest.journal import Journal, JournalEntry
from gateway.ingest.objects import ObjectStore
from gateway.ingest.plan import ReleasePlan
from gateway.keeping.backup import newest_manifest, sha256
from gateway.keeping.catalog import SETTLED_S, EmptyCatalog, KeptCatalog, RestoredCatalog
from gateway.keeping.lost_vectors import LostVectors
from gateway.keeping.manifest import KeptFile, KeptObject, Manifest, load_index
from gateway.keeping.refilling import Refill
from gateway.release.model import ReleaseState

#: the key of the note that a catalog carries from its load on
NOTE = "restore"
Say = Callable[[str], None]


class BackupSource:
    """A backup to restore from; everything read from it is compared with its hash."""

    def __init__(self, source: ObjectStore, manifest: Manifest) -> None:
        self._source = source
        self.manifest = manifest

    @classmethod
    async def open(cls, source: ObjectStore, backup_id: str | None = None) -> "BackupSource":
        """The newest one unless told otherwise. Raises ConfigurationError ``backup_not_found``."""
        try:
            return cls(source, await newest_manifest(source, backup_id))
        except NotFound:
            raise ConfigurationError("backup_not_found", "there is no whole backup at this place") from None

    async def spool(self, folder: Path, tables: frozenset[str]) -> None:
        """Those tables that the backup has, as files ``<table>.jsonl``. Raises BackupDamaged."""
        for name in tables & self.manifest.tables.keys():
            files = self.manifest.tables[name]
            with (folder / f"{name}.jsonl").open("wb") as spooled:
                for file in files:
                    spooled.write(await self._file(file))

    async def objects(self) -> Mapping[str, KeptObject]:
        return load_index(await self._file(self.manifest.index))

    async def content(self, kept: KeptObject) -> bytes:
        return await self._read(kept.blob, kept.sha256)

    async def _file(self, file: KeptFile) -> bytes:
        return await self._read(file.key, file.sha256)

    async def _read(self, key: str, digest: str) -> bytes:
        try:
            content = await self._source.get(key)
        except NotFound as error:
            raise BackupDamaged(f"{key} is gone") from error
        if await to_thread.run_sync(sha256, content) != digest:
            raise BackupDamaged(f"{key} isn't what was written")
        return content


async def check_journal(journal: Journal, manifest: Manifest) -> None:
    """Whether it is the journal of the backup's incarnation, with every entry that it had by then.

    Raises ConfigurationError ``journal_incomplete``, ObjectStoreUnavailable.
    """
    lacking = await journal.lacking(manifest.incarnation, manifest.journaled)
    if lacking:
        raise ConfigurationError(
            "journal_incomplete",
            f"this isn't the backup's journal, or it has lost entries: {lacking[0]} isn't there "
            f"({len(lacking)} in all); name its place with --journal, or go on with --without-journal",
        )


async def restore_objects(source: BackupSource, objects: ObjectStore) -> int:
    """Copies what isn't there; how many objects it copied. Raises BackupDamaged, Unavailable."""
    copied = 0
    for key, kept in (await source.objects()).items():
        if not await _holds(objects, key, kept.sha256):
            await objects.put(key, await source.content(kept))
            copied += 1
    return copied


async def _holds(objects: ObjectStore, key: str, digest: str) -> bool:
    try:
        content = await objects.get(key)
    except NotFound:
        return False
    return await to_thread.run_sync(sha256, content) == digest


async def load_catalog(source: BackupSource, catalog: EmptyCatalog, spool: Path) -> None:
    """``spool`` is an empty private folder. Raises as ``EmptyCatalog.load`` does."""
    manifest = source.manifest
    await source.spool(spool, catalog.tables)
    note = {"backup_id": manifest.backup_id, "taken_at": manifest.taken_at, "loaded_at": time.time()}
    await catalog.load(spool, manifest.as_dump(), {NOTE: json.dumps(note)})


async def send_on(journal: Journal, catalog: RestoredCatalog, incarnation: str) -> None:
    """What the backup's own ``incarnation`` hadn't sent, under the names that it would have sent it by: sent
    under new ones, acts would be in the journal twice, and a later restore would do them again too late.
    """
    entries = await catalog.unsent(incarnation)
    for entry in entries:
        await journal.append(entry)
    await catalog.sent(entries)


async def replay(
    journal: Journal, catalog: RestoredCatalog, taken_at: float
) -> tuple[int, JournalEntry | None]:
    """Does again what the catalog doesn't hold; how many acts, and the newest entry.

    ``taken_at`` is when the backup was, in seconds since the epoch.
    """
    settled = taken_at - SETTLED_S
    entries = [entry for entry in await journal.entries(since=settled) if entry.at > settled]
    replayed = [entry for entry in entries if await catalog.replay(entry)]
    return len(replayed), max(entries, key=lambda entry: entry.at, default=None)


class RefilledCatalog(RestoredCatalog, KeptCatalog, Protocol):
    """Both ports of the catalog."""


async def refill(
    catalog: RefilledCatalog, filling: Refill, say: Say, lost: LostVectors | None = None
) -> tuple[int, int, int]:
    """Writes what every retained release needs; releases, rows and passages that were read back.

    ``lost`` embeds again what was lost. A release that nothing brings back is given up, unless it is ACTIVE:
    that raises DocumentUnusable, NotFound or InvariantViolated.
    """
    releases = rows = citations = 0
    for release in sorted(await catalog.retained(), key=lambda one: one.state is not ReleaseState.ACTIVE):
        plan = await catalog.plan(release.release_id)
        named = f"release {release.release_id} ({release.state})"
        try:
            citations += await _ensure(plan, filling, lost)
        except (DocumentUnusable, NotFound, InvariantViolated) as error:
            if release.state is ReleaseState.ACTIVE:
                raise
            await catalog.give_up(release.release_id)
            say(f"{named}: given up, nobody can go back to it: {error.detail}")
            continue
        rows += (count := sum(len(document.manifest) for document in plan.documents))
        releases += 1
        say(f"{named}: {count} rows")
    return releases, rows, citations


async def _ensure(plan: ReleasePlan, filling: Refill, lost: LostVectors | None) -> int:
    try:
        return await filling.ensure(plan)
    except (NotFound, InvariantViolated):
        if lost is None or not await lost.embed_all(plan):
            raise
    return await filling.ensure(plan)
