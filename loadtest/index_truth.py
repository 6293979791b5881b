"""Exact answers to the index check's questions: numpy over the permitted rows, and nothing of the store's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.index_data import Corpus, Mask, Numbers, Question

#: hits that count
TOP = 10
_K1 = 1.2
_B = 0.75
# float32 sums differ in their last places
_TIE = 1e-5


@dataclass(frozen=True, slots=True)
class Truth:
    """Every row's exact score (not permitted: -inf), and the least that is among the best ten."""

    scores: NDArray[np.float64]
    least: float
    best: int

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> "Truth":
        found = scores[np.isfinite(scores)]
        best = min(TOP, len(found))
        least = float(np.partition(found, -best)[-best]) if best else math.inf
        return cls(scores, least, best)

    def recall(self, chunk_ids: Sequence[str]) -> float:
        """Share of the best ten among the first ten found; of equal scores any will do."""
        if not self.best:
            return 1.0
        found = [self.scores[int(chunk_id[1:])] for chunk_id in dict.fromkeys(chunk_ids[:TOP])]
        return len([score for score in found if score >= self.least - _TIE]) / self.best


def dense_truth(corpus: Corpus, permitted: Mask, questions: Sequence[Question]) -> list[Truth]:
    """By cosine."""
    rows = np.flatnonzero(permitted)
    products = corpus.vectors[rows] @ np.stack([question.vector for question in questions]).T
    found = []
    for column in products.T:
        scores = np.full(corpus.size, -np.inf)
        scores[rows] = column
        found.append(Truth.of(scores))
    return found


class ExactWords:
    """Okapi BM25 (Robertson et al., TREC-3) with Lucene's positive idf over one caller's permitted rows."""

    def __init__(self, corpus: Corpus, permitted: Mask) -> None:
        self._size = corpus.size
        self._rows = np.flatnonzero(permitted)
        words = corpus.words[self._rows]
        lengths = (words >= 0).sum(axis=1)
        self._norm = _K1 * (1 - _B + _B * lengths / lengths.mean())
        place, column = np.nonzero(words >= 0)
        written = words[place, column]
        by_word = np.argsort(written, kind="stable")
        self._written, self._place = written[by_word], place[by_word]

    def truth(self, question: Question) -> Truth:
        scores = np.zeros(len(self._rows))
        for term in question.terms:
            counts = np.bincount(self._holding(int(term[1:])), minlength=len(self._rows))
            holding = int((counts > 0).sum())
            idf = math.log(1 + (len(self._rows) - holding + 0.5) / (holding + 0.5))
            scores += idf * counts * (_K1 + 1) / (counts + self._norm)
        everywhere = np.full(self._size, -np.inf)
        everywhere[self._rows] = np.where(scores > 0, scores, -np.inf)
        return Truth.of(everywhere)

    def _holding(self, word: int) -> Numbers:
        first, last = np.searchsorted(self._written, [word, word + 1])
        return self._place[first:last]
