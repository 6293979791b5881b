"""Answers of an embeddings endpoint, read from bytes: only whole and finite vectors get through."""

import base64
import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.openai.vectors import read_vectors
from gateway.errors import EmbedderUnavailable, EmbeddingSpaceMismatch


def answer(*items: Any) -> bytes:
    return json.dumps({"data": items}).encode()


def item(embedding: Any, index: Any = 0) -> dict[str, Any]:
    return {"index": index, "embedding": embedding}


def packed(*values: float) -> str:
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


@pytest.mark.parametrize(
    ("embedding", "vector"),
    [
        ([0.6, 0.8], (0.6, 0.8)),
        ([3, 4], (0.6, 0.8)),
        ([0, -2], (0.0, -1.0)),
        ([3e-5, 4e-5], (0.6, 0.8)),
        ([3e200, 4e200], (0.6, 0.8)),
        (packed(3, 4), (0.6, 0.8)),
        (packed(1, 0), (1.0, 0.0)),
    ],
)
def test_a_vector_is_brought_to_unit_length(embedding: Any, vector: tuple[float, ...]) -> None:
    """From any length that has a direction."""
    (found,) = read_vectors(answer(item(embedding)), 1, 2)
    assert found == pytest.approx(vector)


def test_a_unit_vector_is_left_as_it_is() -> None:
    """To the bit: a vector that is stored and one that is asked for must be the same."""
    values = (0.6000001, 0.8)
    assert read_vectors(answer(item(list(values))), 1, 2) == [values]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"data": {}}',
        b'{"data": [1]}',
        b'{"data": [{"index": 0, "embedding": [NaN, 1]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999, 1]}]}',
        answer(),
        answer(item([1, 0]), item([1, 0], 1)),
        answer(item([1, 0], -1)),
        answer(item([1, 0], 1)),
        answer(item([1, 0], True)),
        answer(item([1, 0], False)),
        answer(item([1, 0], "0")),
        answer(item([1, 0], None)),
        answer({"embedding": [1, 0]}),
        answer({"index": 0}),
        answer(item(None)),
        answer(item({"0": 1})),
        answer(item([None, 1])),
        answer(item([True, 1])),
        answer(item(["1", 1])),
        answer(item([[1], 1])),
        answer(item([0, 0])),
        answer(item([1e-12, 1e-12])),
        answer(item([1.7e308, 1.7e308])),
        answer(item(packed(math.nan, 1))),
        answer(item(packed(math.inf, 1))),
        answer(item(packed(0, 0))),
        answer(item("AAA")),
        answer(item("no base64 at all!")),
        answer(item("退款")),
    ],
)
def test_anything_else_is_unavailable(body: bytes) -> None:
    """Never half a vector, never one of words, never a guess."""
    with pytest.raises(EmbedderUnavailable):
        read_vectors(body, 1, 2)


@pytest.mark.parametrize("embedding", [[], [1], [1, 0, 0], packed(1), packed(1, 0, 0), ""])
def test_another_dimension_is_another_space(embedding: Any) -> None:
    """Whatever the numbers are."""
    with pytest.raises(EmbeddingSpaceMismatch):
        read_vectors(answer(item(embedding)), 1, 2)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "index", "embedding"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.binary(max_size=60) | st.builds(lambda value: json.dumps(value).encode(), _JSON))
def test_no_answer_brings_it_down(body: bytes) -> None:
    """Two unit vectors, or one of the two errors."""
    try:
        vectors = read_vectors(body, 2, 2)
    except (EmbedderUnavailable, EmbeddingSpaceMismatch):
        return
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 1], abs=1e-5)
