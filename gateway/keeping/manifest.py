"""A backup's manifest: what there must be for it to count. It is written last."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TypeVar

from gateway.errors import BackupDamaged
from gateway.keeping.catalog import CatalogDump

_FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: names the newest whole backup
NEWEST = "newest.json"


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One file of a backup: where it lies in the target, and what it must be. ``rows`` counts lines."""

    key: str
    sha256: str
    size: int
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Manifest:
    """Times are seconds since the epoch. ``index`` lists every object: its key, SHA-256 and size.

    ``tables`` has each table's files in order. ``missing`` are objects that the catalog needed and that
    the store hadn't, or had damaged, when the backup was made. ``journaled``: see ``CatalogDump``.
    """

    backup_id: str
    version: str
    schema: str
    incarnation: str
    taken_at: float
    tables: Mapping[str, tuple[KeptFile, ...]]
    index: KeptFile
    missing: tuple[str, ...]
    journaled: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for files in self.tables.values() for file in files)

    def as_dump(self) -> CatalogDump:
        """What the catalog said of itself; without the objects, which are in the index."""
        rows = {name: sum(file.rows for file in files) for name, files in self.tables.items()}
        return CatalogDump(
            self.schema, self.incarnation, self.taken_at, rows, frozenset(), frozenset(self.journaled)
        )


@dataclass(frozen=True, slots=True)
class KeptObject:
    """An object of the store as the backup has it."""

    key: str
    sha256: str
    size: int

    @property
    def blob(self) -> str:
        """Where its content lies in the target: once, however many backups need it."""
        return f"objects/{self.sha256[:2]}/{self.sha256}"


Kept = TypeVar("Kept", KeptFile, KeptObject)


def manifest_key(backup_id: str) -> str:
    return f"backups/{backup_id}/manifest.json"


def dump_manifest(manifest: Manifest) -> bytes:
    return json.dumps({"format": _FORMAT, **asdict(manifest)}, indent=1, sort_keys=True).encode()


def load_manifest(content: bytes) -> Manifest:
    """Raises BackupDamaged."""
    try:
        raw = json.loads(content)
        if raw["format"] != _FORMAT:
            raise BackupDamaged("another version of this program has made this backup")
        tables = {
            name: tuple(_checked(KeptFile(**file)) for file in files) for name, files in raw["tables"].items()
        }
        known = {name: raw[name] for name in ("backup_id", "version", "schema", "incarnation")}
        manifest = Manifest(
            **known,
            taken_at=float(raw["taken_at"]),
            tables=tables,
            index=_checked(KeptFile(**raw["index"])),
            missing=tuple(raw["missing"]),
            journaled=tuple(map(int, raw["journaled"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupDamaged("a manifest can't be read") from error
    _check_path(manifest.incarnation)
    return manifest


def _checked(kept: Kept) -> Kept:
    """A restore reads and writes only where a backup of ours could lie. Raises BackupDamaged."""
    _check_path(kept.key)
    if not _SHA256.fullmatch(kept.sha256):
        raise BackupDamaged("a manifest names no hash")
    return kept


def _check_path(key: str) -> None:
    if "\\" in key or "\0" in key or not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise BackupDamaged(f"a manifest names a place that no backup has: {key!r}")


def dump_index(objects: Mapping[str, KeptObject]) -> bytes:
    lines = (json.dumps([o.key, o.sha256, o.size]) for _, o in sorted(objects.items()))
    return "".join(f"{line}\n" for line in lines).encode()


def load_index(content: bytes) -> dict[str, KeptObject]:
    """By key. Raises BackupDamaged."""
    try:
        found = [_checked(KeptObject(*json.loads(line))) for line in content.splitlines()]
    except (ValueError, TypeError, AttributeError) as error:
        raise BackupDamaged("an index of objects can't be read") from error
    return {kept.key: kept for kept in found}
