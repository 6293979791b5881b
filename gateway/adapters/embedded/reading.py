"""Reading: passages taken apart into numbers, so that a question is compared with all of them at once."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from gateway.answer.support.sentences import pieces
from gateway.retrieval.terms import terms_of

#: unit rows, one a text; blocks
TextVectors = Callable[[Sequence[str]], NDArray[np.float32]]

Numbers = NDArray[np.int32]

#: a word alone for Latin scripts, a character alone for Han: what a static embedder has a vector for
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")
_WORD_CHARS = 40
#: more of a passage than this isn't looked at
_PASSAGE_CHARS = 8_000
#: longer ones, such as Han text without blanks, come once and are not kept
_WRITTEN_CHARS = 32
#: what an entry of a dictionary takes with its word, about
_ENTRY_BYTES = 200


class Vocabulary(dict[str, int]):
    """Numbers of words, from 0 on; one that isn't known yet gets the next."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def numbers(self, words: Iterable[str]) -> list[int]:
        return list(map(self.__getitem__, words))


@dataclass(frozen=True, slots=True)
class Reading:
    """A passage in the numbers of its Reader. ``terms`` and ``words`` are those of the heading first, then of
    each sentence, end to end; ``term_counts`` and ``word_counts`` say how many each of these parts has (of
    words at least one). ``vectors`` has one unit row a sentence.
    """

    terms: Numbers
    term_counts: Numbers
    words: Numbers
    word_counts: Numbers
    vectors: NDArray[np.float32]

    @property
    def bytes(self) -> int:
        parts = (self.terms, self.term_counts, self.words, self.word_counts, self.vectors)
        return sum(part.nbytes for part in parts) + _ENTRY_BYTES


class Reader:
    """Takes passages apart. Its readings mean nothing to another one. For one thread at a time."""

    def __init__(self, vectors: TextVectors) -> None:
        self._vectors = vectors
        self.terms = Vocabulary()
        self.words = Vocabulary()
        self._written: dict[str, tuple[list[int], list[int]]] = {}
        self._rows = np.empty((0, 0), dtype=np.float32)
        self._known = 0

    @property
    def bytes(self) -> int:
        """What it has learnt, about."""
        entries = len(self.terms) + len(self.words) + 2 * len(self._written)
        return entries * _ENTRY_BYTES + self._rows.nbytes

    def read(
        self, passages: Iterable[tuple[str, str]], goes_on: Callable[[], object] = lambda: None
    ) -> list[Reading]:
        """Of each heading (title and section) and its content; ``goes_on`` is asked before each and may
        raise. All sentences' vectors are made at once: a call for each passage would cost more than they do.
        """
        taken, sentences = [], []
        for heading, content in passages:
            goes_on()
            own = _sentences(content[:_PASSAGE_CHARS])
            taken.append([self._numbers(part) for part in (heading, *own)])
            sentences.append(own)
        if not taken:
            return []
        goes_on()
        rows = self._vectors([*chain.from_iterable(sentences)])
        ends = accumulate(map(len, sentences))
        return [
            _reading(parts, rows[end - len(own) : end])
            for parts, own, end in zip(taken, sentences, ends, strict=True)
        ]

    def word_vectors(self, numbers: Numbers) -> NDArray[np.float32]:
        """Unit rows, one a word."""
        if self._known < len(self.words):
            self._learn(list(self.words)[self._known :])
        rows: NDArray[np.float32] = self._rows.take(numbers, axis=0)
        return rows

    def _learn(self, words: list[str]) -> None:
        found, known = self._vectors(words), self._known + len(words)
        if known > len(self._rows):
            rows = np.empty((max(1024, known * 3 // 2), found.shape[1]), dtype=np.float32)
            rows[: self._known] = self._rows[: self._known].reshape(self._known, found.shape[1])
            self._rows = rows
        self._rows[self._known : known] = found
        self._known = known

    def _numbers(self, part: str) -> tuple[list[int], list[int]]:
        """Its terms and its distinct words. What stands between blanks comes again and again, and neither a
        term nor a word reaches over a blank.
        """
        terms: list[int] = []
        words: list[int] = []
        for written in part.split():
            found = self._written.get(written) or self._taken_apart(written)
            terms += found[0]
            words += found[1]
        return terms, list(dict.fromkeys(words)) or [self.words[""]]

    def _taken_apart(self, written: str) -> tuple[list[int], list[int]]:
        found = self.terms.numbers(terms_of(written)), self.words.numbers(words_of(written))
        if len(written) <= _WRITTEN_CHARS:
            self._written[written] = found
        return found


def words_of(text: str) -> list[str]:
    """Each once, in order, none longer than 40 characters."""
    words = dict.fromkeys(_WORD.findall(text.lower()))
    if max(map(len, words), default=0) > _WORD_CHARS:
        words = dict.fromkeys(word[:_WORD_CHARS] for word in words)
    return list(words)


def _sentences(content: str) -> list[str]:
    return [f"{piece.lead} {piece.text}".strip() for piece in pieces(content)] or [content]


def _reading(parts: Sequence[tuple[list[int], list[int]]], rows: NDArray[np.float32]) -> Reading:
    """``rows`` are copied: they are a part of those of many passages."""
    terms, words = zip(*parts, strict=True)
    return Reading(_joined(terms), _counts(terms), _joined(words), _counts(words), rows.copy())


def _joined(lists: Iterable[list[int]]) -> Numbers:
    return np.array([*chain.from_iterable(lists)], dtype=np.int32)


def _counts(lists: Iterable[list[int]]) -> Numbers:
    return np.array([*map(len, lists)], dtype=np.int32)
