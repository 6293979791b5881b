"""Signals of the gate: what a question's words find in the passages."""

import math

import pytest

from gateway.answer.signals import ReadPassage, Wanted
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of

STATISTICS = TermStatistics(100, {"upload": 3, "limit": 5, "refund": 2})
TOGETHER = ReadPassage.reading("Uploads", "The upload limit is 42 MB. It holds for everybody.")
APART = ReadPassage.reading(
    "Notes", "An upload is a file. We like files. A file has a name. A limit is a number."
)


def wanted(question: str) -> Wanted:
    return Wanted.of(terms_of(question), STATISTICS)


def test_words_that_stand_together_say_more_than_words_apart() -> None:
    """Both passages cover the question, one in neighbouring sentences."""
    asked = wanted("upload limit")
    assert asked.coverage([TOGETHER]) == asked.coverage([APART]) == 1.0
    assert asked.sentence_coverage([TOGETHER]) == 1.0 > asked.sentence_coverage([APART]) > 0


def test_a_mention_in_a_long_passage_is_worth_less() -> None:
    """As BM25 counts it."""
    short = ReadPassage.reading("", "An upload limit.")
    long = ReadPassage.reading("", "An upload limit. " + "Something else entirely. " * 200)
    asked = wanted("upload limit")
    assert 0 < asked.match([long]) < asked.match([short]) < 1


@pytest.mark.parametrize("question", ["", "the of and", "?!"])
def test_a_question_without_words_is_covered_by_nothing(question: str) -> None:
    """Nor by no passages."""
    asked = wanted(question)
    assert asked.coverage([TOGETHER]) == asked.sentence_coverage([TOGETHER]) == asked.match([TOGETHER]) == 0.0
    assert wanted("upload").coverage([]) == wanted("upload").match([]) == 0.0


@pytest.mark.parametrize(
    "content", ["", "x" * 10_000, "。" * 500, "退款在14天内完成。超过30天不予退款。", "\n\n"]
)
def test_every_text_gives_finite_shares(content: str) -> None:
    """In [0, 1], whatever is in it."""
    passage = ReadPassage.reading("", content)
    asked = wanted("退款 upload 14")
    values = (asked.coverage([passage]), asked.sentence_coverage([passage]), asked.match([passage]))
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in values)
