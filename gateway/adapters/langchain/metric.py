"""Metrics: what the number means that comes back with a hit, by the metric of the index it came from."""

from gateway.errors import VectorStoreUnavailable


def similarity_of(metric: str, number: float) -> float:
    """The cosine of two unit vectors, in [-1, 1], from what Milvus returns as "distance".

    COSINE and IP are similarities, higher is nearer, and of unit vectors the same number. L2 is a distance,
    lower is nearer: Milvus leaves the root out, so it is |a - b|^2 = 2 - 2 cos. Raises
    VectorStoreUnavailable for a metric that says nothing of the kind.
    """
    match metric.upper():
        case "COSINE" | "IP":
            cosine = number
        case "L2":
            cosine = 1.0 - number / 2.0
        case _:
            raise VectorStoreUnavailable("the collection's index has a metric that can't be read")
    return max(-1.0, min(1.0, cosine))  # float32 arithmetic may leave the range by a hair
