"""Reading: what a passage is taken apart into, what is kept of it, and that neither changes a number."""

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.adapters.embedded.embedder import SPACE
from gateway.adapters.embedded.features import FEATURES, features
from gateway.adapters.embedded.reading import Reader, Reading, words_of
from gateway.adapters.embedded.rerank import LinearReranker
from gateway.adapters.embedded.shelf import Shelf
from gateway.adapters.embedded.weights import bundled_weights
from gateway.answer.support.sentences import pieces
from gateway.retrieval.bm25 import saturated
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of
from tests.harness.chunks import sample_chunk

#: words of questions and passages: two scripts, numbers, codes, grammar
WORDS = (
    "the harbour crane was repaired in 1904 by Ada Brown, 10,000 tons PAY_LIMIT-9 v1.2.3 上传限额"
    " 限额是 42兆字节 ΟΔΟΣ Straße don't (again) 。 ，而且 什么 é\u0301 İstanbul \u00a0 x"
).split(" ")
SIGNS = "aeTh \n\t\r\u00a0\u3000\u2028.,-_'\u00ad限额是。0019ΣςİßA"


class Counted:
    """Unit vectors of a text's letters; ``asked`` has every text that it was asked for."""

    space = SPACE
    max_sensitivity = 3

    def __init__(self) -> None:
        self.asked: list[str] = []

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.extend(texts)
        return np.stack([self._one(text) for text in texts])

    def _one(self, text: str) -> NDArray[np.float32]:
        row = np.full(SPACE.dimension, 0.01, dtype=np.float32)
        for place, letter in enumerate(text):
            row[(ord(letter) * 31 + place % 3) % SPACE.dimension] += 1
        return np.asarray(row / np.linalg.norm(row), dtype=np.float32)


def nobody_asks() -> None:
    """Whoever waits goes on waiting."""


def words_in(vocabulary: dict[str, int], numbers: NDArray[np.int32]) -> list[str]:
    written = list(vocabulary)
    return [written[number] for number in numbers.tolist()]


def sentences(content: str) -> list[str]:
    return [f"{piece.lead} {piece.text}".strip() for piece in pieces(content)] or [content]


def made_up(chance: random.Random, words: int) -> str:
    """Sentences, list items and lines of them."""
    return "".join(
        chance.choice(WORDS) + chance.choice([" "] * 12 + [". ", "。", "\n\n", ".\n- ", "  "])
        for _ in range(words)
    )


def in_plain(
    question: str,
    passages: Sequence[tuple[str, str]],
    statistics: TermStatistics,
    vectors: Callable[[Sequence[str]], NDArray[np.float32]],
) -> list[list[float]]:
    """The same features passage by passage, as one would write them down. ``dense`` is 0.5 for each."""
    asked = terms_of(question)
    idf = {term: statistics.idf(term) for term in asked}
    pairs = {(a, b): min(idf[a], idf[b]) for a, b in pairwise(asked)}
    words = words_of(question)[:64] or [""]
    weights = [weight_of(word, idf) for word in words]

    def share(of: Mapping[Any, float], found: Collection[Any]) -> float:
        return sum(w for one, w in of.items() if one in found) / sum(of.values()) if sum(of.values()) else 0.0

    def soft(text: Sequence[str]) -> NDArray[np.float64]:
        return np.asarray((vectors(words) @ vectors(list(text) or [""]).T).max(axis=1), dtype=np.float64)

    parts = [[heading, *sentences(content)] for heading, content in passages]
    terms = [[terms_of(part) for part in own] for own in parts]
    lengths = [sum(map(len, own)) for own in terms]
    usual = sum(lengths) / len(lengths) or 1.0
    rows = []
    for own, read, length in zip(parts, terms, lengths, strict=True):
        flat = [term for part in read for term in part]
        counts = Counter(term for term in flat if term in idf)
        sides = [{*a, *b} for a, b in pairwise(read[1:])] or [set(read[1])]
        by_part = [soft(words_of(part)) for part in own]
        mean = np.array(weights) / sum(weights)
        rows.append(
            [
                sum(idf[term] * saturated(n, length / usual) for term, n in counts.items()),
                0.5,
                float((vectors(own[1:]) @ vectors([question])[0]).max()),
                share(idf, {*flat}),
                max(share(idf, side) for side in sides),
                share(pairs, {*pairwise(flat)}),
                float(mean @ np.max(by_part, axis=0)),
                max(float(mean @ one) for one in by_part[1:]),
                math.log((length + 1) / (usual + 1)),
            ]
        )
    top = max(row[0] for row in rows) or 1.0
    return [[row[0] / top, *row[1:]] for row in rows]


def weight_of(word: str, idf: dict[str, float]) -> float:
    own = [idf[term] for term in terms_of(word) if term in idf]
    if not own and len(word) == 1 and not word.isascii():
        own = [weight for term, weight in idf.items() if word in term]
    return max(own, default=0.3)


@pytest.mark.parametrize("seed", range(6))
def test_features_of_all_passages_at_once_are_those_of_each_in_plain(seed: int) -> None:
    """Made-up questions and passages of two scripts, with lists, code and nothing at all."""
    chance = random.Random(seed)
    vectors = Counted().vectors
    question = made_up(chance, chance.choice([0, 1, 3, 9, 30]))
    passages = [(made_up(chance, 2), made_up(chance, chance.choice([0, 1, 8, 60]))) for _ in range(9)]
    passages += [passages[0], ("", "."), (question, question)]
    counted = Counter(term for passage in passages for term in set(terms_of(" ".join(passage))))
    statistics = TermStatistics(40, counted)
    reader = Reader(vectors)
    found = features(question, reader.read(passages), [0.5] * len(passages), statistics, reader, vectors)
    plain = np.array(in_plain(question, passages, statistics, vectors))
    for column, name in enumerate(FEATURES):
        assert found[:, column] == pytest.approx(plain[:, column], abs=1e-5), name


def test_word_by_word_a_text_has_the_terms_and_words_that_it_has_as_a_whole() -> None:
    """Neither reaches over a blank of any kind, and no letter's case depends on what is behind one."""
    chance = random.Random(7)
    for text in [*("".join(chance.choices(SIGNS, k=chance.randrange(60))) for _ in range(400)), "", " "]:
        apart = text.split()
        assert [term for written in apart for term in terms_of(written)] == [*terms_of(text)], ascii(text)
        words = dict.fromkeys(word for written in apart for word in words_of(written))
        assert list(words) == words_of(text), ascii(text)


def test_a_reading_has_the_terms_and_words_of_every_part() -> None:
    """Those of the heading first; a part without words has the empty one."""
    vectors = Counted().vectors
    reader = Reader(vectors)
    content = "The crane broke. 1904: repaired. ..."
    (reading,) = reader.read([("Harbour\nCranes", content)])
    parts = ["Harbour\nCranes", *sentences(content)]
    assert words_in(reader.terms, reading.terms) == [term for part in parts for term in terms_of(part)]
    assert reading.term_counts.tolist() == [len(terms_of(part)) for part in parts]
    assert words_in(reader.words, reading.words) == [
        word for part in parts for word in words_of(part) or [""]
    ]
    assert np.array_equal(reading.vectors, vectors(parts[1:]))
    assert np.array_equal(reader.word_vectors(reading.words), vectors(words_in(reader.words, reading.words)))


def test_word_vectors_are_those_of_the_embedder_however_many_come() -> None:
    """Also once the room for them has grown, and each is asked for once."""
    embedder = Counted()
    reader = Reader(embedder.vectors)
    for first in range(0, 2_000, 700):
        numbers = np.array(reader.words.numbers(f"w{n}" for n in range(first, first + 900)), dtype=np.int32)
        rows = reader.word_vectors(numbers)
    assert np.array_equal(rows, Counted().vectors(words_in(reader.words, numbers)))
    everything = np.arange(len(reader.words), dtype=np.int32)
    assert np.array_equal(reader.word_vectors(everything), Counted().vectors(list(reader.words)))
    assert len(embedder.asked) == len(set(embedder.asked)) == len(reader.words)


def passage(content: str, **changes: str) -> Chunk:
    return sample_chunk(content, **changes)


def test_a_passage_is_read_once_and_its_numbers_stay_the_same() -> None:
    """Whatever else is asked about it, and in whatever company."""
    embedder = Counted()
    shelf = Shelf(embedder.vectors)
    chunks = [passage(f"Crane {n} was repaired. It rained.") for n in range(3)]
    first = shelf.read(chunks, nobody_asks)
    asked = len(embedder.asked)
    again = shelf.read([chunks[2], chunks[0], chunks[2]], nobody_asks)
    assert len(embedder.asked) == asked
    assert [id(one) for one in again] == [id(first[2]), id(first[0]), id(first[2])]


@pytest.mark.parametrize("field", ["tenant_id", "chunk_id", "title", "section", "content"])
def test_what_another_tenant_or_another_version_has_is_read_by_itself(field: str) -> None:
    """Nobody meets what was read for somebody else."""
    embedder = Counted()
    shelf = Shelf(embedder.vectors)
    known = passage("The crane was repaired.")
    shelf.read([known], nobody_asks)
    changed = {"content": known.content, "name" if field == "chunk_id" else field: "other"}
    other = sample_chunk(**changed)
    asked = len(embedder.asked)
    (reading,) = shelf.read([other], nobody_asks)
    assert len(embedder.asked) > asked
    assert isinstance(reading, Reading)


def test_a_shelf_keeps_no_more_than_it_may() -> None:
    """Once it is full it begins anew, at the end of a question."""
    shelf = Shelf(Counted().vectors, most_bytes=200_000)
    for n in range(60):
        shelf.read([passage(f"Crane {n} was repaired. " * 20)], nobody_asks)
        full = shelf.bytes > 200_000
        shelf.tidy()
        assert shelf.bytes <= 200_000
        if full:
            break
    assert full
    assert shelf.bytes < 1_000


def test_who_leaves_while_passages_are_read_leaves_nothing_half_read() -> None:
    """The next question reads them whole."""

    class Gone(Exception):
        """Nobody waits."""

    left = iter([None, Gone()])

    def goes_on() -> None:
        gone = next(left, None)
        if gone is not None:
            raise gone

    chunks = [passage("The crane was repaired."), passage("It rained. It snowed.")]
    shelf = Shelf(Counted().vectors)
    with pytest.raises(Gone):
        shelf.read(chunks, goes_on)
    found = shelf.read(chunks, nobody_asks)
    assert [len(reading.vectors) for reading in found] == [1, 2]


def test_a_question_has_the_same_numbers_however_often_it_is_asked() -> None:
    """From passages that were kept, and from a process that has just begun."""
    embedder = Counted()
    chunks = [passage(made_up(random.Random(n), 40)) for n in range(8)]
    candidates = [Candidate(chunk, 0.5, True, 0.1, "rrf", "dense #1") for chunk in chunks]
    linear = LinearReranker(embedder, bundled_weights())
    statistics = TermStatistics(9, {"crane": 3})
    question = "Who repaired the harbour crane?"
    first = linear.scores_now(question, candidates, statistics)
    linear.scores_now("上传限额是什么", candidates[:3], statistics)
    assert linear.scores_now(question, candidates, statistics) == first
    fresh = LinearReranker(Counted(), bundled_weights())
    assert fresh.scores_now(question, candidates, statistics) == pytest.approx(first, abs=1e-9)
