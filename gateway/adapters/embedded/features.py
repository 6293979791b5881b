"""Features: what a question and a passage have in common, as numbers a linear reranker can weigh."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.answer.support.sentences import pieces
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

_Part = TypeVar("_Part", bound=Hashable)

Floats = NDArray[np.float64]
#: unit rows, one a text; blocks
TextVectors = Callable[[Sequence[str]], NDArray[np.float32]]

#: a word alone for Latin scripts, a character alone for Han: what a static embedder has a vector for
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_WORD_CHARS = 40
_WORDS_ASKED = 64
#: more of a passage than this isn't looked at
_PASSAGE_CHARS = 8_000
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
        words = dict.fromkeys(_words(question)[:_WORDS_ASKED], _STOP_WEIGHT)
        return cls(idf, pairs, {word: _weight(word, idf) for word in words})


@dataclass(frozen=True, slots=True)
class Reading:
    """A passage taken apart. ``terms`` and ``words`` are those of the heading first, then of each sentence;
    ``vectors`` has one unit row a sentence.
    """

    terms: tuple[tuple[str, ...], ...]
    words: tuple[tuple[str, ...], ...]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, heading: str, content: str, vectors: TextVectors) -> "Reading":
        """``heading`` is title and section. Most of the work of a rerank: about 1 ms a passage."""
        content = content[:_PASSAGE_CHARS]
        sentences = [f"{piece.lead} {piece.text}".strip() for piece in pieces(content)] or [content]
        parts = (heading, *sentences)
        return cls(tuple(map(terms_of, parts)), tuple(map(_words, parts)), vectors(sentences))


class WordVectors:
    """Vectors of single words, some thousands of them kept: passages share most of their words. For one
    thread at a time.
    """

    def __init__(self, vectors: TextVectors, kept: int = 8192) -> None:
        self._vectors = vectors
        self._kept = kept
        self._places: dict[str, int] = {}
        self._rows = np.empty((0, 0), dtype=np.float32)

    def __call__(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Unit rows, one a word; each word once."""
        if len(words) > self._kept:
            return self._vectors(words)
        missing = [word for word in words if word not in self._places]
        if len(self._places) + len(missing) > self._kept:
            self._places, missing = {}, list(words)
        if missing:
            self._add(missing)
        rows: NDArray[np.float32] = self._rows[[self._places[word] for word in words]]
        return rows

    def _add(self, words: list[str]) -> None:
        found, first = self._vectors(words), len(self._places)
        if not len(self._rows):
            self._rows = np.empty((self._kept, found.shape[1]), dtype=np.float32)
        self._rows[first : first + len(words)] = found
        self._places.update(zip(words, range(first, first + len(words)), strict=True))


def features(
    question: str,
    read: Sequence[Reading],
    similarities: Sequence[float],
    statistics: TermStatistics,
    vectors: TextVectors,
    words: TextVectors,
) -> Floats:
    """One row a passage, in their order, one column a name in FEATURES; from about 0 to 1, NaN where a
    vector has one. BM25 and lengths are relative to the passages at hand. ``similarities`` are the passages'
    cosines to the question.
    """
    asked = _Asked.of(question, statistics)
    lexical = _lexical(asked, read)
    soft = _soft(asked, read, words)
    near = np.concatenate([one.vectors for one in read]) @ vectors([question])[0]
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


def _lexical(asked: _Asked, read: Sequence[Reading]) -> dict[str, list[float]]:
    lengths = [sum(map(len, one.terms)) for one in read]
    usual = sum(lengths) / len(lengths) or 1.0
    bm25 = [_bm25(asked, one, length / usual) for one, length in zip(read, lengths, strict=True)]
    top = max(bm25) or 1.0
    return {
        "bm25": [score / top for score in bm25],
        "coverage": [_share(asked.terms, frozenset().union(*one.terms)) for one in read],
        "pair_coverage": [_best_pair(asked, one) for one in read],
        "bigrams": [_share(asked.pairs, _pairs(one)) for one in read],
        "length": [math.log((length + 1) / (usual + 1)) for length in lengths],
    }


def _bm25(asked: _Asked, read: Reading, length: float) -> float:
    counts = Counter(term for terms in read.terms for term in terms if term in asked.terms)
    return sum(asked.terms[term] * saturated(n, length) for term, n in counts.items())


def _best_pair(asked: _Asked, read: Reading) -> float:
    """The coverage by the best two sentences side by side."""
    sets = [frozenset(terms) for terms in read.terms[1:]]
    sides = [one | other for one, other in pairwise(sets)] or sets
    return max(_share(asked.terms, side) for side in sides)


def _pairs(read: Reading) -> frozenset[tuple[str, str]]:
    return frozenset(pairwise(term for terms in read.terms for term in terms))


def _share(weights: Mapping[_Part, float], found: Collection[_Part]) -> float:
    total = sum(weights.values())
    return sum(weight for item, weight in weights.items() if item in found) / total if total > 0 else 0.0


def _soft(asked: _Asked, read: Sequence[Reading], words: TextVectors) -> dict[str, Floats]:
    """IDF-weighted mean over the question's words of the nearest word's cosine, in the passage with its
    heading and in the best sentence: late interaction (Khattab and Zaharia, SIGIR 2020) on single words.
    """
    parts = [part or ("",) for one in read for part in one.words]
    vocabulary = {word: place for place, word in enumerate(dict.fromkeys(w for part in parts for w in part))}
    near = words(list(asked.words) or [""]) @ words(list(vocabulary)).T
    columns = near[:, [vocabulary[word] for part in parts for word in part]].astype(np.float64)
    by_part = np.maximum.reduceat(columns, _starts(list(map(len, parts))), axis=1)
    weights = np.array(list(asked.words.values()) or [1.0])
    weights /= weights.sum()
    starts = _starts([len(one.words) for one in read])
    whole = weights @ np.maximum.reduceat(by_part, starts, axis=1)
    single = weights @ by_part
    single[starts] = -1.0  # a heading is no sentence
    return {"passage": whole, "sentence": np.maximum.reduceat(single, starts)}


def _starts(lengths: Sequence[int]) -> NDArray[np.intp]:
    return np.cumsum([0, *lengths[:-1]], dtype=np.intp)


def _words(text: str) -> tuple[str, ...]:
    words = dict.fromkeys(_WORD.findall(text.lower()))
    if max(map(len, words), default=0) > _WORD_CHARS:
        words = dict.fromkeys(word[:_WORD_CHARS] for word in words)
    return tuple(words)


def _weight(word: str, idf: dict[str, float]) -> float:
    """Of a Han character: the highest of the pairs it is in."""
    own = [idf[term] for term in terms_of(word) if term in idf]
    if not own and len(word) == 1 and not word.isascii():
        own = [weight for term, weight in idf.items() if word in term]
    return max(own, default=_STOP_WEIGHT)
