"""BM25 as every store, index and feature of the gateway counts it (Robertson et al., TREC-3)."""

#: as Lucene and Milvus servers have them; Lite's own default for k1 is 1.5
K1 = 1.2
B = 0.75


def saturated(count: float, length: float) -> float:
    """What ``count`` occurrences of a term are worth, before its IDF, in a text that is ``length`` times as
    long as the average one: 0 to K1 + 1.
    """
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length))
