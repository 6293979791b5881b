"""MemoryObjects: the in-memory twin of the object store."""

import time
from collections.abc import AsyncIterator, Callable, Mapping

from gateway.errors import InvalidField, NotFound, ObjectStoreUnavailable
from gateway.ingest.objects import StoredObject


class MemoryObjects:
    """ObjectStore in a dict. Set ``available`` to False to see what callers do without it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds since the epoch."""
        self.available = True
        self._clock = clock
        self._objects: dict[str, bytes] = {}
        self._modified: dict[str, float] = {}

    async def put(self, key: str, content: bytes) -> None:
        self._objects[self._checked(key)] = bytes(content)
        self._modified[key] = self._clock()

    async def put_all(self, contents: Mapping[str, bytes]) -> None:
        for key in contents:
            self._checked(key)
        for key, content in contents.items():
            await self.put(key, content)

    async def get(self, key: str) -> bytes:
        try:
            return self._objects[self._checked(key)]
        except KeyError as error:
            raise NotFound() from error

    async def exists(self, key: str) -> bool:
        return self._checked(key) in self._objects

    async def delete(self, key: str) -> None:
        self._objects.pop(self._checked(key), None)

    async def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        folder = self._checked(prefix) + "/" if prefix else ""
        for key, content in tuple(self._objects.items()):
            if key.startswith(folder):
                yield StoredObject(key, len(content), self._modified[key])

    def _checked(self, key: str) -> str:
        odd = not isinstance(key, str) or any(c in "\0\\" or "\ud800" <= c <= "\udfff" for c in key)
        if odd or len(key.encode()) > 900 or any(part in ("", ".", "..") for part in key.split("/")):
            raise InvalidField("an object key is a relative path without empty or dot segments")
        if not self.available:
            raise ObjectStoreUnavailable()
        return key
