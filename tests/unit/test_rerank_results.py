"""Answers of rerank endpoints: one finite number a passage, or none at all."""

import json

import pytest

from gateway.adapters.rerank.results import read_scores
from gateway.errors import RerankerUnavailable

SECRET = "what the endpoint wrote"


def results(*items: object) -> bytes:
    return json.dumps({"id": SECRET, "results": items}).encode()


GOOD = {
    "in Cohere's form": results(
        {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}, {"index": 0, "relevance_score": 0.25}
    ),
    "in TEI's form": b'[{"index": 1, "score": 0.9, "text": "b"}, {"index": 0, "score": 0.25}]',
    "as whole numbers below 0": results(
        {"index": 0, "relevance_score": -7}, {"index": 1, "relevance_score": 2}
    ),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_scores_come_in_the_order_of_the_passages(body: bytes) -> None:
    """Whatever the order of the results, and whoever made them."""
    first, second = read_scores(body, 2)
    assert first < second


BAD = {
    "not JSON": b'{"results": [',
    "a NaN": b'{"results": [{"index": 0, "relevance_score": NaN}]}',
    "a number without an end": b'{"results": [{"index": 0, "relevance_score": 1e999}]}',
    "no results": b"{}",
    "results that are no list": b'{"results": {"index": 0, "relevance_score": 1}}',
    "a word": b'"0.5"',
    "null": b"null",
    "too few": results(),
    "too many": results({"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": 1}),
    "an index out of range": results({"index": 1, "relevance_score": 1}),
    "a negative index": results({"index": -1, "relevance_score": 1}),
    "an index that is a word": results({"index": "0", "relevance_score": 1}),
    "an index that is true": results({"index": False, "relevance_score": 1}),
    "an index that is a fraction": results({"index": 0.0, "relevance_score": 1}),
    "no index": results({"relevance_score": 1}),
    "no score": results({"index": 0}),
    "a score that is null": results({"index": 0, "relevance_score": None}),
    "a score that is a word": results({"index": 0, "relevance_score": SECRET}),
    "a score that is true": results({"index": 0, "relevance_score": True}),
    "a result that is a number": results(0.5),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_an_answer_that_is_not_clear_is_none(body: bytes) -> None:
    """A guess would be an order that nobody meant; nothing of what the endpoint wrote is told."""
    with pytest.raises(RerankerUnavailable) as caught:
        read_scores(body, 1)
    assert SECRET not in caught.value.detail
    assert 0 < len(caught.value.detail) < 90


def test_a_repeated_index_is_refused() -> None:
    """Even with the right number of results."""
    body = results({"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 0.5})
    with pytest.raises(RerankerUnavailable):
        read_scores(body, 2)
