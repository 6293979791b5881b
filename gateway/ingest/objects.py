"""The port to the object store."""

from typing import Protocol


class ObjectStore(Protocol):
    """Originals, chunk files and vector files. Raises ObjectStoreUnavailable."""

    async def put(self, key: str, content: bytes) -> None:
        """Whole or not at all; writing the same key again replaces it."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises NotFound."""
        ...

    async def exists(self, key: str) -> bool: ...

    async def delete(self, key: str) -> None:
        """Fine when there is none."""
        ...
