"""MemoryObjects: the in-memory twin of the object store."""

from gateway.errors import InvalidField, NotFound, ObjectStoreUnavailable


class MemoryObjects:
    """ObjectStore in a dict. Set ``available`` to False to see what callers do without it."""

    def __init__(self) -> None:
        self.available = True
        self._objects: dict[str, bytes] = {}

    async def put(self, key: str, content: bytes) -> None:
        self._objects[self._checked(key)] = bytes(content)

    async def get(self, key: str) -> bytes:
        try:
            return self._objects[self._checked(key)]
        except KeyError as error:
            raise NotFound() from error

    async def exists(self, key: str) -> bool:
        return self._checked(key) in self._objects

    async def delete(self, key: str) -> None:
        self._objects.pop(self._checked(key), None)

    def _checked(self, key: str) -> str:
        odd = not isinstance(key, str) or any(c in "\0\\" or "\ud800" <= c <= "\udfff" for c in key)
        if odd or len(key.encode()) > 900 or any(part in ("", ".", "..") for part in key.split("/")):
            raise InvalidField("an object key is a relative path without empty or dot segments")
        if not self.available:
            raise ObjectStoreUnavailable()
        return key
