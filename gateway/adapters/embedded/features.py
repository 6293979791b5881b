"""Features: what a question and passages have in common, as numbers a linear reranker can weigh."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.reading import Numbers, Reader, Reading, TextVectors, words_of
from gateway.retrieval.bm25 import saturated
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of

#: the columns of ``features``, in order
FEATURES = (
    "bm25",
    "dense",
    "sentence",
    "coverage",
    "pair_coverage",
    "bigrams",
    "soft_coverage",
    "soft_sentence",
    "length",
)

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

_WORDS_ASKED = 64
#: what a word weighs that is in no term: "who", "many"
_STOP_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question: its terms and pairs of neighbouring terms with their IDF, its words with theirs."""

    terms: dict[str, float]
    pairs: dict[tuple[str, str], float]
    words: dict[str, float]

    @classmethod
    def of(cls, question: str, statistics: TermStatistics) -> "_Asked":
        found = terms_of(question)
        idf = {term: statistics.idf(term) for term in found}
        pairs = {(a, b): min(idf[a], idf[b]) for a, b in pairwise(found)}
        words = words_of(question)[:_WORDS_ASKED]
        return cls(idf, pairs, {word: _weight(word, idf) for word in words} or {"": 1.0})


@dataclass(frozen=True, slots=True)
class _Parts:
    """Where the headings and sentences of all passages are, end to end. ``heads`` are the places of the
    headings, with which a passage begins; ``passage`` is whose each part is.
    """

    heads: Places
    passage: Places

    @classmethod
    def of(cls, read: Sequence[Reading]) -> "_Parts":
        counts = [len(one.term_counts) for one in read]
        return cls(_starts(counts), np.repeat(np.arange(len(read)), counts))

    def best(self, of_parts: Floats) -> Floats:
        """A passage's best sentence; a heading is none."""
        of_parts[self.heads] = -1.0
        best: Floats = np.maximum.reduceat(of_parts, self.heads)
        return best


def features(
    question: str,
    read: Sequence[Reading],
    similarities: Sequence[float],
    statistics: TermStatistics,
    reader: Reader,
    vectors: TextVectors,
) -> Floats:
    """One row a passage, in their order, one column a name in FEATURES; from about 0 to 1, NaN where a
    vector has one. BM25 and lengths are relative to the passages at hand, which ``reader`` has read.
    ``similarities`` are the passages' cosines to the question.
    """
    asked, parts = _Asked.of(question, statistics), _Parts.of(read)
    lexical = _lexical(asked, read, parts, reader)
    soft = _soft(asked, read, parts, reader)
    near = _products(vectors([question]), np.concatenate([one.vectors for one in read]))[0]
    return np.column_stack(
        [
            lexical["bm25"],
            np.maximum(0.0, np.array(similarities)),  # Python's max would make 0 of NaN
            np.maximum.reduceat(near.astype(np.float64), _starts([len(one.vectors) for one in read])),
            lexical["coverage"],
            lexical["pair_coverage"],
            lexical["bigrams"],
            soft["passage"],
            soft["sentence"],
            lexical["length"],
        ]
    )


@dataclass(frozen=True, slots=True)
class _Hits:
    """The asked terms where they stand: ``place`` counts over all passages' terms, ``part`` is the part it is
    in, ``term`` the number of the term among the asked ones.
    """

    place: Places
    part: Places
    term: Places

    @classmethod
    def of(cls, asked: _Asked, read: Sequence[Reading], reader: Reader) -> "_Hits":
        terms = np.concatenate([one.terms for one in read])
        counts = np.concatenate([one.term_counts for one in read])
        number = np.full(len(reader.terms), -1, dtype=np.intp)
        for at, term in enumerate(asked.terms):
            if term in reader.terms:
                number[reader.terms[term]] = at
        found = number[terms]
        place = np.flatnonzero(found >= 0)
        return cls(place, np.repeat(np.arange(len(counts)), counts)[place], found[place])


def _lexical(asked: _Asked, read: Sequence[Reading], parts: _Parts, reader: Reader) -> dict[str, Floats]:
    hits, idf = _Hits.of(asked, read, reader), np.array([*asked.terms.values()])
    there = np.zeros((len(parts.passage), len(idf)), dtype=bool)
    there[hits.part, hits.term] = True
    beside = there.copy()
    beside[:-1] |= there[1:]  # the next passage's heading is no neighbour of a last sentence
    beside[parts.heads[1:] - 1] = there[parts.heads[1:] - 1]
    lengths = np.array([len(one.terms) for one in read])
    usual = lengths.mean() or 1.0
    bm25 = _bm25(idf, hits, parts, lengths / usual)
    return {
        "bm25": bm25 / (bm25.max() or 1.0),
        "coverage": _share(idf, np.logical_or.reduceat(there, parts.heads, axis=0)),
        "pair_coverage": parts.best(_share(idf, beside)),
        "bigrams": _bigrams(asked, hits, parts, len(read)),
        "length": np.log((lengths + 1) / (usual + 1)),
    }


def _bm25(idf: Floats, hits: _Hits, parts: _Parts, lengths: Floats) -> Floats:
    counts = np.zeros((len(lengths), len(idf)))
    np.add.at(counts, (parts.passage[hits.part], hits.term), 1.0)
    passage, term = np.nonzero(counts)
    each = zip(counts[passage, term].tolist(), lengths[passage].tolist(), strict=True)
    counts[passage, term] = [saturated(count, length) for count, length in each]
    found: Floats = (idf * counts).sum(axis=1)
    return found


def _bigrams(asked: _Asked, hits: _Hits, parts: _Parts, passages: int) -> Floats:
    """Pairs may reach from one part of a passage into the next."""
    numbers = {term: number for number, term in enumerate(asked.terms)}
    places = {(numbers[a], numbers[b]): place for place, (a, b) in enumerate(asked.pairs)}
    there = np.zeros((passages, len(places)), dtype=bool)
    passage = parts.passage[hits.part]
    beside = np.flatnonzero((np.diff(hits.place) == 1) & (np.diff(passage) == 0))
    for first in beside.tolist():
        pair = places.get((int(hits.term[first]), int(hits.term[first + 1])))
        if pair is not None:
            there[passage[first], pair] = True
    return _share(np.array([*asked.pairs.values()]), there)


def _share(weights: Floats, there: NDArray[np.bool_]) -> Floats:
    """Of the weights, by row. Summed along the rows: equal rows have equal sums."""
    total = weights.sum()
    found: Floats = (there * weights).sum(axis=1) / total if total > 0 else np.zeros(len(there))
    return found


def _soft(asked: _Asked, read: Sequence[Reading], parts: _Parts, reader: Reader) -> dict[str, Floats]:
    """IDF-weighted mean over the question's words of the nearest word's cosine, in the passage with its
    heading and in the best sentence: late interaction (Khattab and Zaharia, SIGIR 2020) on single words.
    """
    words = np.concatenate([one.words for one in read])
    counts = np.concatenate([one.word_counts for one in read])
    mine = np.array(reader.words.numbers(asked.words), dtype=np.int32)
    distinct, places = _distinct(words, len(reader.words))
    near = _products(reader.word_vectors(mine), reader.word_vectors(distinct)).take(places, axis=1)
    by_part = np.maximum.reduceat(near, _starts(counts), axis=1).astype(np.float64)
    weights = np.array([*asked.words.values()])[:, np.newaxis]
    weights /= weights.sum()
    whole = (weights * np.maximum.reduceat(by_part, parts.heads, axis=1)).sum(axis=0)
    return {"passage": whole, "sentence": parts.best((weights * by_part).sum(axis=0))}


def _products(some: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each with each. A matrix product would wake a thread a core, and they wait for one another in loops:
    ten words by 1,500 took 0.5 ms on one core, but 8 ms on two that others use too. This takes 1 ms, and
    equal rows have equal products wherever they stand.
    """
    found: NDArray[np.float32] = np.einsum("od,sd->so", others, some)
    return found


def _distinct(numbers: Numbers, size: int) -> tuple[Numbers, Places]:
    """The distinct ones of numbers below ``size``, and where among them each one is."""
    there = np.zeros(size, dtype=bool)
    there[numbers] = True
    return np.flatnonzero(there).astype(np.int32), (np.cumsum(there) - 1)[numbers]


def _starts(lengths: Sequence[int] | Numbers) -> Places:
    return np.cumsum([0, *lengths[:-1]], dtype=np.intp)


def _weight(word: str, idf: dict[str, float]) -> float:
    """Of a Han character: the highest of the pairs it is in."""
    own = [idf[term] for term in terms_of(word) if term in idf]
    if not own and len(word) == 1 and not word.isascii():
        own = [weight for term, weight in idf.items() if word in term]
    return max(own, default=_STOP_WEIGHT)
