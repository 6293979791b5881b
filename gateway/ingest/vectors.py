"""Vector files: the vectors of new texts of one document version, as raw little-endian float32."""

import sys
from array import array
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from gateway.ingest.catalog import ObjectStore, VectorPlace
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.embedding import Vector

_CACHED_FILES = 64


def text_hash(space_id: str, text: str) -> str:
    """Names a text's vector: the same text in another space is another vector."""
    return stable_hash(space_id, text)


def pack(vectors: Sequence[Vector]) -> bytes:
    packed = array("f", (value for vector in vectors for value in vector))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack(content: bytes, dimension: int) -> list[Vector]:
    values = array("f")
    values.frombytes(content)
    if sys.byteorder == "big":
        values.byteswap()
    return [tuple(values[i : i + dimension]) for i in range(0, len(values), dimension)]


class VectorFiles:
    """Reads vectors by place; keeps the last few files in memory while a release is built."""

    def __init__(self, objects: ObjectStore, dimension: int) -> None:
        self._objects = objects
        self._dimension = dimension
        self._files: OrderedDict[str, list[Vector]] = OrderedDict()

    async def load(self, places: Mapping[str, VectorPlace]) -> dict[str, Vector]:
        """The vector of each text hash. Raises NotFound when a file is gone."""
        return {name: (await self._file(place.object_key))[place.position] for name, place in places.items()}

    async def _file(self, key: str) -> list[Vector]:
        known = self._files.pop(key, None)
        vectors = known or unpack(await self._objects.get(key), self._dimension)
        self._files[key] = vectors
        if len(self._files) > _CACHED_FILES:
            self._files.popitem(last=False)
        return vectors
