"""Signals: what a question's words find in the passages that may become evidence, for the gate to weigh."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gateway.answer.support.sentences import split_sentences
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of

#: BM25's usual k1 and b; the average length is a constant, or a passage's signal would depend on the others
_K1, _B, _AVERAGE_TERMS = 1.5, 0.75, 80


@dataclass(frozen=True, slots=True)
class ReadPassage:
    """A passage's terms: those of its headings, and of its sentences one by one."""

    headings: frozenset[str]
    sentences: tuple[tuple[str, ...], ...]
    terms: frozenset[str]

    @classmethod
    def of(cls, chunk: Chunk) -> "ReadPassage":
        return cls.reading(f"{chunk.title}\n{chunk.section}", chunk.content)

    @classmethod
    def reading(cls, headings: str, content: str) -> "ReadPassage":
        above = frozenset(terms_of(headings))
        sentences = tuple(map(terms_of, split_sentences(content)))
        return cls(above, sentences, above.union(*sentences))

    def windows(self) -> Iterator[frozenset[str]]:
        """Every two neighbouring sentences, under the headings."""
        for first in range(max(1, len(self.sentences) - 1)):
            yield self.headings.union(*self.sentences[first : first + 2])

    def counted(self) -> Counter[str]:
        """How often each term stands there; once for the headings."""
        return Counter(self.headings) + Counter(term for sentence in self.sentences for term in sentence)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The question's terms, each with its IDF among what the caller may see."""

    weights: Mapping[str, float]
    total: float

    @classmethod
    def of(cls, terms: Sequence[str], statistics: TermStatistics) -> "Wanted":
        weights = {term: statistics.idf(term) for term in set(terms)}
        return cls(weights, sum(weights.values()))

    def coverage(self, passages: Sequence[ReadPassage]) -> float:
        """Share of the IDF found in the best passage, in [0, 1]; 0 for a question without terms."""
        return max((self._share(passage.terms) for passage in passages), default=0.0)

    def sentence_coverage(self, passages: Sequence[ReadPassage]) -> float:
        """The same for the best two neighbouring sentences: words that stand together say more."""
        return max((self._share(window) for p in passages for window in p.windows()), default=0.0)

    def match(self, passages: Sequence[ReadPassage]) -> float:
        """BM25 of the best passage over the most that any could get, in [0, 1]."""
        return max((self._bm25(passage.counted()) for passage in passages), default=0.0)

    def _share(self, terms: frozenset[str]) -> float:
        if self.total <= 0:
            return 0.0
        return sum(weight for term, weight in self.weights.items() if term in terms) / self.total

    def _bm25(self, counts: Counter[str]) -> float:
        if self.total <= 0:
            return 0.0
        long = _K1 * (1 - _B + _B * counts.total() / _AVERAGE_TERMS)
        return sum(w * counts[t] / (counts[t] + long) for t, w in self.weights.items()) / self.total
