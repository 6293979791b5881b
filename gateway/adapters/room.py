"""Room: whether a folder's disk takes what is to be stored, with some kept for what can't wait."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anyio import to_thread

from gateway.errors import ObjectStoreUnavailable, StorageFull
from gateway.ingest.objects import NO_ROOM

_PROBE = bytes(4096)


class Room:
    """Imports leave ``reserve_bytes`` of the disk free: a revocation must still find its place there."""

    def __init__(self, folder: Path, reserve_bytes: int) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_bytes

    def check(self, size_bytes: int = 0) -> None:
        """Blocks. Raises StorageFull when so much more would leave less than the reserve. Without a reserve
        whoever writes finds out: free blocks aren't all that decides.
        """
        if not self._reserve_bytes:
            return
        with _translated():
            disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize - size_bytes < self._reserve_bytes:
            raise StorageFull("the disk of the data folder has too little room left")

    async def spare(self) -> None:
        """For readiness: imports find room. Raises StorageFull, ObjectStoreUnavailable."""
        await to_thread.run_sync(self.check)

    async def ping(self) -> None:
        """For readiness: something can be written, reserve or not. Leaves nothing behind, even when cut
        short. Raises StorageFull, ObjectStoreUnavailable.
        """
        await to_thread.run_sync(self._prove)

    def _prove(self) -> None:
        with _translated(), tempfile.TemporaryFile(dir=self._folder) as probe:
            probe.write(_PROBE)
            probe.flush()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageFull("the disk of the data folder is full") from error
        raise ObjectStoreUnavailable(f"the data folder can't be written to: {error.strerror}") from error
