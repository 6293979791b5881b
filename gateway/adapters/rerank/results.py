"""The answer of a rerank endpoint, sans IO: its JSON into one number a passage, in the passages' order."""

import math

import orjson

from gateway.errors import RerankerUnavailable


def read_scores(body: bytes, count: int) -> list[float]:
    """Of ``{"results": [{"index", "relevance_score"}]}`` as Cohere, Jina and vLLM send it, or of
    ``[{"index", "score"}]`` as Text Embeddings Inference does; in any order.

    Raises RerankerUnavailable for anything that isn't exactly one finite number for each passage.
    """
    items = _items(body)
    if len(items) != count:
        raise RerankerUnavailable(f"the rerank endpoint sent {len(items)} results for {count} passages")
    scores: dict[int, float] = {}
    for item in items:
        if not isinstance(item, dict):
            raise _unknown_shape()
        index = item.get("index")
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise RerankerUnavailable("the rerank endpoint doesn't say which result is of which passage")
        scores[index] = _number(item["relevance_score"] if "relevance_score" in item else item.get("score"))
    return [scores[index] for index in range(count)]


def _items(body: bytes) -> list[object]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        # NaN and Infinity too: JSON has neither
        raise RerankerUnavailable("the rerank endpoint sent something that is not JSON") from None
    items = answer.get("results") if isinstance(answer, dict) else answer
    if not isinstance(items, list):
        raise _unknown_shape()
    return items


def _number(score: object) -> float:
    """A boolean isn't one, though Python takes it for one."""
    if isinstance(score, float | int) and not isinstance(score, bool) and math.isfinite(score):
        return float(score)
    raise RerankerUnavailable("the rerank endpoint sent a score that is no finite number")


def _unknown_shape() -> RerankerUnavailable:
    return RerankerUnavailable("the rerank endpoint sent an answer of an unknown shape")
