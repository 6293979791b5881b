"""Vector files: the vectors of new texts of one document version, as raw little-endian float32."""

import math
import sys
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from anyio import to_thread

from gateway.errors import InvariantViolated, NotFound
from gateway.ingest.objects import ObjectStore
from gateway.ingest.version import VectorPlace
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.embedding import Vector

#: of files kept in memory; the last one stays however large it is
_CACHED_BYTES = 64 * 1024 * 1024


def text_hash(tenant: str, text: str) -> str:
    """Names an embedded text of one tenant, in every space alike: its vector in each is found by the space
    and this. Two tenants share no name, so that what is reused or stays tells neither of the other's texts.
    """
    return stable_hash(tenant, text)


def pack(vectors: Sequence[Vector]) -> bytes:
    packed = array("f")
    for vector in vectors:
        packed.extend(vector)
    return _little_endian(packed)


def unpack(content: bytes, dimension: int) -> list[Vector]:
    """Raises InvariantViolated when these are no whole vectors."""
    values = _floats(content, dimension)
    return [tuple(values[i : i + dimension]) for i in range(0, len(values), dimension)]


def _floats(content: bytes, dimension: int) -> "array[float]":
    values = array("f")
    if len(content) % (values.itemsize * dimension):
        raise InvariantViolated("a vector file doesn't hold whole vectors of its space")
    values.frombytes(content)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _little_endian(values: "array[float]") -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def patched(content: bytes, dimension: int, vectors: Mapping[int, Vector]) -> bytes:
    """A damaged file's content with these positions filled in; what nobody knows any more is NaN."""
    whole = len(content) - len(content) % (array("f").itemsize * dimension)
    values = _floats(content[:whole], dimension)
    missing = dimension * (max(vectors) + 1) - len(values)
    values.extend([math.nan] * max(0, missing))
    for position, vector in vectors.items():
        values[position * dimension : (position + 1) * dimension] = array("f", vector)
    return _little_endian(values)


class VectorFiles:
    """Vectors by place; keeps the last files in memory, up to a size, while a release is built."""

    def __init__(self, objects: ObjectStore, dimension: int, *, cached_bytes: int = _CACHED_BYTES) -> None:
        self._objects = objects
        self._cached_bytes = cached_bytes
        self._dimension = dimension
        # as packed floats: as tuples they would take eight times the memory
        self._files: OrderedDict[str, array[float]] = OrderedDict()
        self._kept_bytes = 0
        self._damaged: set[str] = set()

    async def vector(self, place: VectorPlace) -> Vector:
        """Raises NotFound when the file is gone, InvariantViolated when it isn't what its places say."""
        vector = self._at(await self._file(place.object_key), place.position)
        if vector is None:
            raise InvariantViolated("a vector file is shorter than its places")
        return vector

    async def holds(self, place: VectorPlace) -> bool:
        """Whether the vector is really there. Zeros alone are what a lost block of a disk reads as."""
        if place.object_key in self._damaged:
            return False
        try:
            file = await self._file(place.object_key)
        except (NotFound, InvariantViolated):
            self._damaged.add(place.object_key)
            return False
        return any(self._at(file, place.position) or ())

    async def put_back(self, vectors: Mapping[VectorPlace, Vector]) -> None:
        """Writes lost vectors into their old places, which other texts' versions name as well."""
        files: dict[str, dict[int, Vector]] = {}
        for place, vector in vectors.items():
            files.setdefault(place.object_key, {})[place.position] = vector
        for key, own in files.items():
            try:
                content = await self._objects.get(key)
            except NotFound:
                content = b""
            await self._objects.put(key, await to_thread.run_sync(patched, content, self._dimension, own))
            self._take(key)
            self._damaged.discard(key)

    def _at(self, file: "array[float]", position: int) -> Vector | None:
        vector = tuple(file[position * self._dimension : (position + 1) * self._dimension])
        whole = len(vector) == self._dimension and not math.isnan(vector[0])
        return vector if whole else None

    async def _file(self, key: str) -> "array[float]":
        file = self._take(key)
        if file is None:
            file = _floats(await self._objects.get(key), self._dimension)
        self._files[key] = file
        self._kept_bytes += _size(file)
        while self._kept_bytes > self._cached_bytes and len(self._files) > 1:
            self._kept_bytes -= _size(self._files.popitem(last=False)[1])
        return file

    def _take(self, key: str) -> "array[float] | None":
        file = self._files.pop(key, None)
        self._kept_bytes -= 0 if file is None else _size(file)
        return file


def _size(file: "array[float]") -> int:
    return len(file) * file.itemsize
