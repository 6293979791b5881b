"""Doubt: sentences that are about a question and don't answer it."""

import math

import pytest

from gateway.adapters.embedded.doubt import Doubts, Verdict

QUOTED = "Refunds\nAcme pays refunds within 14 days after the return to Berlin."
GOOD_FIT = 1.3


def verdict(question: str, fit: float = GOOD_FIT, quoted: str = QUOTED) -> Verdict:
    return Doubts.of(question, quoted, fit).verdict


def test_a_question_that_the_sentence_covers_is_answered() -> None:
    """Nothing speaks against it."""
    assert verdict("Within how many days does Acme pay refunds?") is Verdict.ANSWER


@pytest.mark.parametrize(
    "question",
    [
        "When does Acme not pay refunds?",
        "When does Acme pay refunds of more than 500 EUR?",
        "When does Acme pay refunds before the return?",
    ],
)
def test_a_condition_that_the_sentence_does_not_have_is_doubtful(question: str) -> None:
    """A negation, a number, an opposite."""
    assert verdict(question) is not Verdict.ANSWER


def test_each_doubt_lowers_the_score_and_a_better_fit_raises_it() -> None:
    """So that an answer never becomes surer by lacking something."""
    none = Doubts(1.0, 0, 0, 0, 0)
    for worse in (
        Doubts(0.9, 0, 0, 0, 0),
        Doubts(1.0, 1, 0, 0, 0),
        Doubts(1.0, 0, 1, 0, 0),
        Doubts(1.0, 0, 0, 1, 0),
        Doubts(1.0, 0, 0, 0, 1),
    ):
        assert worse.score < none.score


@pytest.mark.parametrize(
    "quoted",
    [
        "Acme pays no refunds after 30 days.",
        "After 30 days Acme refuses refunds.",
        "Acme pays refunds only within 30 days.",
        "Acme pays refunds until the 30th day.",
    ],
)
def test_a_denial_may_stand_in_other_words(quoted: str) -> None:
    """Only a text without any is doubted."""
    assert Doubts.of("When does Acme not pay refunds?", quoted, GOOD_FIT).negation == 0.0


def test_names_count_by_their_share() -> None:
    """Labelled questions misspell one in twenty."""
    half = Doubts.of("Does Acme pay refunds like Globex?", QUOTED, GOOD_FIT)
    assert (half.names, half.negation, half.numbers) == (0.5, 0.0, 0.0)


def test_nothing_that_is_no_number_is_an_answer() -> None:
    """A NaN neither."""
    assert verdict("Refunds?", math.nan) is Verdict.NO_ANSWER
    assert verdict("Refunds?", -math.inf) is Verdict.NO_ANSWER
