"""The linear reranker's order of labelled passages, each of which is read once for all questions."""

from collections.abc import Sequence

import numpy as np

from gateway.adapters.embedded.features import features
from gateway.adapters.embedded.reading import Reader, Reading
from gateway.adapters.embedded.rerank import CLOSE
from gateway.adapters.embedded.weights import RankingWeights
from gateway.evaluation.index import Vectors
from gateway.evaluation.labelled import Passage
from gateway.retrieval.lexicon import TermStatistics


class LinearOrder:
    """An Order, the same that LinearReranker makes. For one set: passages are kept by their ids."""

    def __init__(self, embedder: Vectors, weights: RankingWeights) -> None:
        self._vectors = embedder.vectors
        self._reader = Reader(embedder.vectors)
        self._weights = np.array(weights.values)
        self._read: dict[str, Reading] = {}
        self.version = weights.version

    def ranked(
        self,
        question: str,
        found: Sequence[Passage],
        similarities: Sequence[float],
        statistics: TermStatistics,
    ) -> list[tuple[Passage, float]]:
        near = found[:CLOSE]
        read = [self._reading(passage) for passage in near]
        rows = features(question, read, similarities[:CLOSE], statistics, self._reader, self._vectors)
        scores = rows @ self._weights
        ranked = [(near[int(place)], float(scores[place])) for place in np.argsort(-scores, kind="stable")]
        least = float(scores.min())
        return [*ranked, *((one, least - place) for place, one in enumerate(found[CLOSE:], start=1))]

    def _reading(self, passage: Passage) -> Reading:
        if passage.id not in self._read:
            (self._read[passage.id],) = self._reader.read([(f"{passage.title}\n", passage.text)])
        return self._read[passage.id]
