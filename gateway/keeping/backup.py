"""Backups: one snapshot of the catalog, and every object it needs, copied into a folder or a bucket.

Objects lie in the target under the hash of their content, so each is copied once. The manifest comes
last: a backup that was cut short has none, and the next one uses what it has copied.
"""

import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

import gateway
from gateway.errors import NotFound
from gateway.ingest.objects import ObjectStore
from gateway.keeping.catalog import CatalogDump, DumpedCatalog
from gateway.keeping.manifest import (
    NEWEST,
    KeptFile,
    KeptObject,
    Manifest,
    dump_index,
    dump_manifest,
    load_index,
    load_manifest,
    manifest_key,
)

#: a table is cut into files of about this size, so that none is too large for one request or the memory
_FILE_BYTES = 8 * 1024 * 1024
#: a restore gives up releases that even the last one can't bring back
_SNAPSHOTS = 3
#: how the names of originals and chunk files end: all or half of the SHA-256 of their content
_NAMED_BY_CONTENT = (
    re.compile(r"originals/(?:.*/)?([0-9a-f]{64})"),
    re.compile(r"chunks/.*-([0-9a-f]{32})\.json"),
)


@dataclass(frozen=True, slots=True)
class TakenBackup:
    """``copied`` and ``copied_bytes`` count the objects that the target hadn't."""

    manifest: Manifest
    objects: int
    copied: int
    copied_bytes: int


class Backup:
    """Takes backups of one catalog and its objects into one target."""

    def __init__(self, catalog: DumpedCatalog, objects: ObjectStore, target: ObjectStore) -> None:
        self._catalog = catalog
        self._objects = objects
        self._target = target

    async def take(self, spool: Path) -> TakenBackup:
        """``spool`` is an empty private folder with room for the catalog's tables.

        Raises Unavailable, ConfigurationError.
        """
        backup_id = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(3)}"
        dump, kept, copied, missing = await self._keep_snapshot(spool)
        tables = {name: await self._keep_table(backup_id, name, spool) for name in dump.rows}
        index = await self._keep_file(f"backups/{backup_id}/objects.jsonl", dump_index(kept), len(kept))
        manifest = Manifest(
            backup_id=backup_id,
            version=gateway.__version__,
            schema=dump.schema,
            incarnation=dump.incarnation,
            taken_at=dump.taken_at,
            tables=tables,
            index=index,
            missing=missing,
            journaled=tuple(sorted(dump.journaled)),
        )
        await self._target.put(manifest_key(backup_id), await to_thread.run_sync(dump_manifest, manifest))
        await self._target.put(NEWEST, json.dumps({"backup_id": backup_id}).encode())
        return TakenBackup(manifest, len(kept), len(copied), sum(one.size for one in copied))

    # tables

    async def _keep_table(self, backup_id: str, name: str, spool: Path) -> tuple[KeptFile, ...]:
        files: list[KeptFile] = []
        pieces = _pieces(spool / f"{name}.jsonl")
        while (piece := await to_thread.run_sync(next, pieces, None)) is not None:
            key = f"backups/{backup_id}/tables/{name}-{len(files):05d}.jsonl"
            files.append(await self._keep_file(key, piece, piece.count(b"\n")))
        return tuple(files)

    async def _keep_file(self, key: str, content: bytes, rows: int) -> KeptFile:
        await self._target.put(key, content)
        return KeptFile(key, await to_thread.run_sync(sha256, content), len(content), rows)

    # objects

    async def _keep_snapshot(
        self, spool: Path
    ) -> tuple[CatalogDump, dict[str, KeptObject], list[KeptObject], tuple[str, ...]]:
        """A dump, what the backup has of its objects, what was copied now, and what couldn't be had.

        A document may be deleted or a release reclaimed while objects are copied, and theirs are gone: then
        the snapshot is of a moment that can't be brought back, and a newer one is taken.
        """
        before, copied = dict(await self._newest_index()), list[KeptObject]()
        for _ in range(_SNAPSHOTS):
            dump = await self._catalog.dump(spool)
            kept, new, gone = await self._keep_objects(dump, before)
            copied += new
            missing = gone & await self._catalog.needed_objects() if gone else gone
            if not gone & dump.needed - missing:
                break
            before |= kept
        return dump, kept, copied, tuple(sorted(missing))

    async def _newest_index(self) -> Mapping[str, KeptObject]:
        """The objects of the newest whole backup in the target."""
        try:
            manifest = await newest_manifest(self._target)
        except NotFound:
            return {}
        return load_index(await self._target.get(manifest.index.key))

    async def _keep_objects(
        self, dump: CatalogDump, before: Mapping[str, KeptObject]
    ) -> tuple[dict[str, KeptObject], list[KeptObject], set[str]]:
        """What the backup has, what of it was copied now, and what is gone."""
        kept: dict[str, KeptObject] = {}
        copied: list[KeptObject] = []
        gone: set[str] = set()
        for key in sorted(dump.objects):
            known = before.get(key)
            if known is not None and _hash_in(key) and await self._target.exists(known.blob):
                kept[key] = known  # its name says that it can't have changed
                continue
            content = await self._content(key)
            if content is None:
                gone.add(key)
                continue
            kept[key] = KeptObject(key, await to_thread.run_sync(sha256, content), len(content))
            if not await self._target.exists(kept[key].blob):
                await self._target.put(kept[key].blob, content)
                copied.append(kept[key])
        return kept, copied, gone

    async def _content(self, key: str) -> bytes | None:
        """None when it is gone, or isn't what its name says."""
        try:
            content = await self._objects.get(key)
        except NotFound:
            return None
        return content if await to_thread.run_sync(is_whole, key, content) else None


def is_whole(key: str, content: bytes) -> bool:
    """Whether an object is what its name says, where the name says anything."""
    return sha256(content).startswith(_hash_in(key))


def _hash_in(key: str) -> str:
    """Empty where the name says nothing of the content."""
    matches = (pattern.fullmatch(key) for pattern in _NAMED_BY_CONTENT)
    return next((match.group(1) for match in matches if match), "")


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def newest_manifest(target: ObjectStore, backup_id: str | None = None) -> Manifest:
    """Raises NotFound when there is no whole backup (of this id), BackupDamaged."""
    if backup_id is None:
        backup_id = str(json.loads(await target.get(NEWEST))["backup_id"])
    return load_manifest(await target.get(manifest_key(backup_id)))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while lines := file.readlines(_FILE_BYTES):
            yield b"".join(lines)
