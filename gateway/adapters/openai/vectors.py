"""Embedding answers, sans IO: the JSON of one call into unit vectors, in the order of their texts."""

import base64
import math
import sys
from array import array

import orjson

from gateway.errors import EmbedderUnavailable, EmbeddingSpaceMismatch
from gateway.retrieval.embedding import Vector

#: what float32 leaves of a length of 1; a server that rounds harder is normalised here
_ROUNDING = 1e-5
#: shorter than this a vector is rounding noise and points nowhere
_NOTHING = 1e-9
_NUMBERS = {float, int}


def read_vectors(body: bytes, count: int, dimension: int) -> list[Vector]:
    """``count`` unit vectors of ``dimension`` numbers, by their index; as lists of numbers or as base64.

    Raises EmbeddingSpaceMismatch for another dimension, EmbedderUnavailable for anything else that isn't
    one usable vector a text.
    """
    items = _items(body)
    if len(items) != count:
        raise EmbedderUnavailable(f"the embedding endpoint made {len(items)} vectors of {count} texts")
    vectors: dict[int, Vector] = {}
    for item in items:
        if not isinstance(item, dict):
            raise EmbedderUnavailable("the embedding endpoint sent an answer of an unknown shape")
        index = item.get("index")
        if type(index) is not int or not 0 <= index < count or index in vectors:
            raise EmbedderUnavailable("the embedding endpoint doesn't say which vector is of which text")
        vectors[index] = _unit(_numbers(item.get("embedding")), dimension)
    return [vectors[index] for index in range(count)]


def _items(body: bytes) -> list[object]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        # NaN and Infinity too: JSON has neither
        raise EmbedderUnavailable("the embedding endpoint sent something that is not JSON") from None
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list):
        raise EmbedderUnavailable("the embedding endpoint sent an answer of an unknown shape")
    return items


def _numbers(embedding: object) -> Vector:
    if isinstance(embedding, str):
        return _unpacked(embedding)
    if not isinstance(embedding, list) or not set(map(type, embedding)) <= _NUMBERS:
        raise EmbedderUnavailable("the embedding endpoint sent a vector that isn't made of numbers")
    return tuple(map(float, embedding))


def _unpacked(packed: str) -> Vector:
    """Little-endian float32, as the API packs them."""
    values = array("f")
    try:
        values.frombytes(base64.b64decode(packed, validate=True))
    except ValueError:
        raise EmbedderUnavailable("the embedding endpoint sent a vector that isn't made of numbers") from None
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)


def _unit(vector: Vector, dimension: int) -> Vector:
    if len(vector) != dimension:
        raise EmbeddingSpaceMismatch(
            f"the embedding endpoint makes vectors of {len(vector)} numbers, configured are {dimension}"
        )
    length = math.hypot(*vector)  # not finite when a number isn't
    if not math.isfinite(length) or length < _NOTHING:
        raise EmbedderUnavailable("the embedding endpoint sent a vector without a direction")
    if abs(length - 1) <= _ROUNDING:
        return vector
    return tuple(value / length for value in vector)
