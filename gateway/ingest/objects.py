"""The port to the object store."""

import errno
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

#: what a system says of a disk that takes no more
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it. ``modified`` is when it was last put, in seconds since the epoch on
    the store's clock.
    """

    key: str
    size_bytes: int
    modified: float


class ObjectStore(Protocol):
    """Originals, chunk files and vector files. Raises ObjectStoreUnavailable."""

    async def put(self, key: str, content: bytes) -> None:
        """Whole or not at all; writing the same key again replaces it and makes it new."""
        ...

    async def put_all(self, contents: Mapping[str, bytes]) -> None:
        """Objects by key, each whole or not at all; waits for the disk once. Raises InvalidField for a bad
        key, and then puts none.
        """
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def exists(self, key: str) -> bool: ...

    async def delete(self, key: str) -> None:
        """Fine when there is none."""
        ...

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """The objects below a folder (``chunks``, not ``chu``; "" is all of them), in no order; what is put
        or deleted meanwhile may be missing. Raises InvalidField.
        """
        ...
