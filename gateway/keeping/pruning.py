"""Pruning: old backups leave their target, and with them what was deleted since."""

from gateway.ingest.objects import ObjectStore
from gateway.keeping.manifest import load_index, load_manifest, manifest_key

_BACKUPS, _BLOBS = "backups", "objects"


async def prune(target: ObjectStore, keep: int) -> int:
    """Leaves the newest ``keep`` whole backups and what they need; how many others there were.

    Those that were cut short count as others. Nobody may be taking a backup into the target meanwhile.
    Raises ObjectStoreUnavailable, BackupDamaged.
    """
    files = {found.key: found.modified async for found in target.list(_BACKUPS)}
    ids = sorted({key.split("/")[1] for key in files})
    whole = [backup_id for backup_id in ids if manifest_key(backup_id) in files]
    # names begin with the second they were made in; of two in one the file tells which is the newer
    whole.sort(key=lambda backup_id: (backup_id.partition("-")[0], files[manifest_key(backup_id)]))
    kept = set(whole[-keep:])
    needed: set[str] = set()
    for backup_id in kept:
        manifest = load_manifest(await target.get(manifest_key(backup_id)))
        index = load_index(await target.get(manifest.index.key))
        needed |= {one.blob for one in index.values()}
    # manifests first: what is half removed must not look whole
    for key in sorted(files, key=lambda key: not key.endswith("/manifest.json")):
        if key.split("/")[1] not in kept:
            await target.delete(key)
    unneeded = [found.key async for found in target.list(_BLOBS) if found.key not in needed]
    for key in unneeded:
        await target.delete(key)
    return len(ids) - len(kept)
