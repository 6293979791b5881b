"""An index of labelled passages in memory, searched as a gateway with these settings searches it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gateway.evaluation.labelled import Passage
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.bm25 import saturated
from gateway.retrieval.chunk import embedded_text
from gateway.retrieval.fusion import reciprocal_rank_fusion
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of
from gateway.settings import Settings

_BATCH = 64


class Vectors(Protocol):
    """An embedder as a command uses it."""

    @property
    def space(self) -> EmbeddingSpace: ...

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a passage."""
        ...


@runtime_checkable
class TwoSided(Vectors, Protocol):
    """One that reads questions in another way than passages."""

    def question_vectors(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True)
class Routes:
    """Places of passages, best first: by route, and fused."""

    bm25: list[int]
    dense: list[int]
    fused: list[int]


class Index:
    """BM25 and vectors of a few hundred passages. ``statistics`` are over all of them."""

    def __init__(self, passages: Sequence[Passage], embedder: Vectors, settings: Settings) -> None:
        self._passages = passages
        self._settings = settings
        texts = [embedded_text(p.title, "", p.text) for p in passages]
        counts = [Counter(terms_of(text)) for text in texts]
        self.statistics = TermStatistics(len(texts), Counter(t for c in counts for t in c))
        self._vectors = embed(embedder, texts)
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        average = sum(count.total() for count in counts) / len(counts) or 1.0
        for place, count in enumerate(counts):
            for term, n in count.items():
                self._postings[term].append((place, saturated(n, count.total() / average)))

    def passages(self, places: Iterable[int]) -> list[Passage]:
        return [self._passages[place] for place in places]

    def similarities(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self._vectors @ vector)

    def routes(self, terms: Iterable[str], similarities: NDArray[np.float32]) -> Routes:
        depth = self._settings.candidates
        bm25 = self._words(terms)
        dense = [int(i) for i in np.argsort(-similarities, kind="stable")[:depth]]
        named = {"bm25": list(map(str, bm25)), "dense": list(map(str, dense))}
        weights = {"bm25": self._settings.rrf_lexical_weight, "dense": self._settings.rrf_dense_weight}
        fused = reciprocal_rank_fusion(named, weights, self._settings.rrf_k)
        return Routes(bm25, dense, [int(place) for place, _ in fused])

    def _words(self, terms: Iterable[str]) -> list[int]:
        scores = np.zeros(len(self._vectors))
        for term in set(terms):
            for place, weight in self._postings.get(term, ()):
                scores[place] += self.statistics.idf(term) * weight
        best = np.argsort(-scores, kind="stable")[: self._settings.candidates]
        return [int(i) for i in best if scores[i] > 0]


def embed(embedder: Vectors, texts: Iterable[str]) -> NDArray[np.float32]:
    """Of passages, in batches."""
    return _in_batches(embedder.vectors, texts)


def embed_questions(embedder: Vectors, texts: Iterable[str]) -> NDArray[np.float32]:
    """Likewise of questions."""
    vectors = embedder.question_vectors if isinstance(embedder, TwoSided) else embedder.vectors
    return _in_batches(vectors, texts)


def _in_batches(
    vectors: Callable[[Sequence[str]], NDArray[np.float32]], texts: Iterable[str]
) -> NDArray[np.float32]:
    rest = iter(texts)
    return np.concatenate([vectors(part) for part in iter(lambda: list(islice(rest, _BATCH)), [])])
