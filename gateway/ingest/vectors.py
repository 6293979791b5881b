"""Vector files: the vectors of new texts of one document version, as raw little-endian float32."""

import sys
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from gateway.errors import InvariantViolated
from gateway.ingest.catalog import ObjectStore, VectorPlace
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.embedding import Vector

_CACHED_FILES = 64


def text_hash(space_id: str, text: str) -> str:
    """Names a text's vector: the same text in another space is another vector."""
    return stable_hash(space_id, text)


def pack(vectors: Sequence[Vector]) -> bytes:
    packed = array("f")
    for vector in vectors:
        packed.extend(vector)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


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


class VectorFiles:
    """Reads vectors by place; keeps the last few files in memory while a release is built."""

    def __init__(self, objects: ObjectStore, dimension: int) -> None:
        self._objects = objects
        self._dimension = dimension
        # as packed floats: as tuples they would take eight times the memory
        self._files: OrderedDict[str, array[float]] = OrderedDict()

    async def load(self, places: Mapping[str, VectorPlace]) -> dict[str, Vector]:
        """The vector of each text hash. Raises NotFound when a file is gone, InvariantViolated when it
        isn't what its places say.
        """
        return {name: await self._vector(place) for name, place in places.items()}

    async def _vector(self, place: VectorPlace) -> Vector:
        file = await self._file(place.object_key)
        start = place.position * self._dimension
        vector = tuple(file[start : start + self._dimension])
        if len(vector) != self._dimension:
            raise InvariantViolated("a vector file is shorter than its places")
        return vector

    async def _file(self, key: str) -> "array[float]":
        file = self._files.pop(key, None)
        if file is None:
            file = _floats(await self._objects.get(key), self._dimension)
        self._files[key] = file
        if len(self._files) > _CACHED_FILES:
            self._files.popitem(last=False)
        return file
