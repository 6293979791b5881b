"""Keeping: settings -> a backup, a restore or a comparison of one installation, from parts opened for it."""

import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.adapters.children.build_child import ChildParser
from gateway.adapters.objects import open_objects
from gateway.adapters.sql.keeping import PostgresServer, SqliteFile, SqlKeeping
from gateway.admission.bulkhead import Bulkhead
from gateway.bootstrap.journal import journal_of
from gateway.bootstrap.models import import_batch
from gateway.bootstrap.parts import PartsOpener
from gateway.errors import ConfigurationError
from gateway.ingest.catalog import VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuilder
from gateway.ingest.validator import Validator
from gateway.keeping.backup import Backup, TakenBackup
from gateway.keeping.comparing import Compared, Comparison
from gateway.keeping.lost_vectors import LostVectors
from gateway.keeping.pruning import prune
from gateway.keeping.refilling import Refill
from gateway.keeping.restore import (
    NOTE,
    BackupSource,
    check_journal,
    load_catalog,
    refill,
    replay,
    restore_objects,
    send_on,
)
from gateway.retrieval.store import ChunkWriter
from gateway.settings import Settings

Say = Callable[[str], None]

_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back. ``backup_age_s``: what was imported since then is lost. ``took_s`` is this run's."""

    backup_id: str
    backup_age_s: float
    newest_entry_age_s: float | None
    replayed: int
    objects: int
    releases: int
    rows: int
    citations: int
    took_s: float


async def back_up(settings: Settings, target: str, keep: int | None = None) -> tuple[TakenBackup, int]:
    """Beside whatever runs; with ``keep`` all but so many leave the target afterwards, and their number.

    A backup that misses something removes no other. Raises ConfigurationError, Unavailable.
    """
    catalog = _catalog_of(settings)
    with _spool() as spool:
        await catalog.needed_objects()  # before a folder is made: is there a catalog at all?
        store = open_objects(target)
        taken = await Backup(catalog, objects_of(settings), store).take(Path(spool))
    removed = 0 if keep is None or taken.manifest.missing else await prune(store, keep)
    return taken, removed


async def restore(
    settings: Settings,
    source: str,
    say: Say,
    *,
    backup_id: str | None = None,
    without_journal: bool = False,
) -> Restored:
    """Into an empty installation, or on from where an earlier call stopped.

    ``without_journal`` goes on with whatever the journal has.

    With embedded parts nobody else may use the data folder meanwhile. Raises ConfigurationError,
    BackupDamaged, Unavailable.
    """
    began = time.monotonic()
    backup = await BackupSource.open(open_objects(source), backup_id)
    taken_at = backup.manifest.taken_at
    say(f"backup {backup.manifest.backup_id}, taken {_moment(taken_at)}, {backup.manifest.rows} rows")
    journal = journal_of(settings)
    if without_journal:
        say(_forgotten(taken_at))
    else:
        await check_journal(journal, backup.manifest)
    copied = await restore_objects(backup, objects_of(settings))
    say(f"objects: {copied} copied")
    if not await _is_loaded(settings, backup.manifest.backup_id):
        with _spool() as spool:
            await load_catalog(backup, _catalog_of(settings), Path(spool))
        say("catalog: loaded")
    async with _parts(settings) as parts:
        await send_on(journal, parts.keeping, backup.manifest.incarnation)
        replayed, newest = await replay(journal, parts.keeping, taken_at)
        say(f"journal: {replayed} acts done again")
        releases, rows, citations = await refill(parts.keeping, parts.filling, say, parts.lost)
        await parts.keeping.finish()
    return Restored(
        backup_id=backup.manifest.backup_id,
        backup_age_s=time.time() - taken_at,
        newest_entry_age_s=None if newest is None else time.time() - newest.at,
        replayed=replayed,
        objects=len(await backup.objects()),
        releases=releases,
        rows=rows,
        citations=citations,
        took_s=time.monotonic() - began,
    )


def _forgotten(taken_at: float) -> str:
    return (
        f"without a whole journal: whatever was revoked, deleted, rejected or narrowed after "
        f"{_moment(taken_at)} and isn't in this journal is valid and visible again; do it again right "
        "after --confirm, before you let anybody in"
    )


async def confirm(settings: Settings) -> bool:
    """Opens a restored catalog to questions; False when it was open. Raises ConfigurationError."""
    async with AsyncExitStack() as stack:
        return await SqlKeeping((await PartsOpener(settings, stack).catalog()).database).confirm()


async def compare(settings: Settings, *, repair: bool) -> Compared:
    """With embedded parts nobody else may use the data folder meanwhile.

    Raises ConfigurationError, Unavailable.
    """
    async with _parts(settings) as parts:
        return await Comparison(
            parts.keeping,
            parts.catalog,
            parts.objects,
            parts.vectors,
            filling=parts.filling,
            rebuilder=parts.rebuilder,
            vectors=parts.embedding,
            repair=repair,
        ).run()


def objects_of(settings: Settings) -> ObjectStore:
    return open_objects(settings.object_store_url or settings.data_dir / "objects")


def _catalog_of(settings: Settings) -> SqliteFile | PostgresServer:
    if settings.database_url is None:
        return SqliteFile(settings.data_dir / "catalog.db")
    return PostgresServer(settings.database_url.get_secret_value())


async def _is_loaded(settings: Settings, backup_id: str) -> bool:
    """Whether an earlier call has loaded this backup. Raises ConfigurationError for another one."""
    async with AsyncExitStack() as stack:
        catalog = await PartsOpener(settings, stack).catalog()
        note = (await SqlKeeping(catalog.database).note()).get(NOTE)
    if note is None:
        return False
    if (loaded := json.loads(note)["backup_id"]) != backup_id:
        raise ConfigurationError("catalog_not_empty", f"the restore of {loaded} has begun here")
    return True


def _spool() -> "tempfile.TemporaryDirectory[str]":
    """Private: the tables hold digests of keys and names of people."""
    return tempfile.TemporaryDirectory(prefix="qa-gateway-tables-")


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(at))


@dataclass(frozen=True, slots=True)
class _Parts:
    catalog: VersionStore
    keeping: SqlKeeping
    objects: ObjectStore
    vectors: ChunkWriter
    filling: Refill
    rebuilder: Rebuilder
    embedding: TextVectors
    lost: LostVectors


@asynccontextmanager
async def _parts(settings: Settings) -> AsyncIterator[_Parts]:
    async with AsyncExitStack() as stack:
        opener = PartsOpener(settings, stack)
        catalog = await opener.catalog()
        objects = await opener.objects()
        vectors = await opener.vectors(may_create=True)
        parser = ChildParser(
            cap_s=settings.parse_cap_s,
            max_bytes=settings.document_max_bytes,
            memory_mb=settings.parse_memory_mb,
        )
        stack.push_async_callback(parser.aclose)
        rebuilder = Rebuilder(objects, parser)
        offline = Bulkhead("offline_embedding", settings.offline_embedding_concurrency, _WAIT_MS)
        embedding = TextVectors(objects, opener.models.offline_embedder(), offline, import_batch(settings))
        yield _Parts(
            catalog=catalog,
            keeping=SqlKeeping(catalog.database),
            objects=objects,
            vectors=vectors,
            filling=Refill(objects, catalog, vectors, Validator(vectors, vectors), rebuilder.rebuild),
            rebuilder=rebuilder,
            embedding=embedding,
            lost=LostVectors(objects, catalog, embedding, rebuilder.rebuild),
        )
