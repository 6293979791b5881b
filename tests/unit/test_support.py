"""The support check after generation: numbers, units, names, negations and opposites."""

import pytest

from gateway.answer.amounts import amounts, same_amounts
from gateway.answer.opposites import turned_round
from gateway.answer.quote import QuotablePassage, supported

LIMITS = (
    "The upload limit is 42 MB for each user. Uploads after 18:00 are allowed for members of the night shift."
)


@pytest.mark.parametrize(
    ("sentence", "quote"),
    [
        ("The upload limit is 42 GB for each user", "The upload limit is 42 MB for each user."),
        ("The upload limit is 24 MB for each user", "The upload limit is 42 MB for each user."),
        ("The upload limit is not 42 MB", "The upload limit is 42 MB."),
        ("The fee is increased to 5 EUR", "The fee is decreased to 5 EUR."),
        ("Access is forbidden before noon for guests", "Access is forbidden after noon for guests."),
        ("Refunds cost $5", "Refunds cost 5 €."),
        ("保修期为3年", "保修期为3个月。"),
        ("系统允许导出数据", "系统禁止导出数据。"),
    ],
)
def test_a_statement_that_changes_what_counts_is_not_supported(sentence: str, quote: str) -> None:
    """Another number, another unit, a negation, an opposite: with nearly every word the same."""
    assert not supported(sentence, quote)


@pytest.mark.parametrize(
    ("sentence", "quote"),
    [
        ("The limit is 42 megabytes", "The limit is 42 MB."),
        ("The limit is 1000 users", "The limit is 1,000 users."),
        ("It costs 9 EUR", "It costs: 9"),
        ("Uploads are refunded within 14 days", "Uploads are refunded within 14 days of the order."),
        ("It opens before noon and closes after six", "It opens before noon and closes after six."),
        ("保修期为三年", "保修期为三年。"),
    ],
)
def test_another_spelling_of_the_same_is_supported(sentence: str, quote: str) -> None:
    """Units have several names, thousands a comma, and a bare number no unit to differ from."""
    assert supported(sentence, quote)


def test_a_name_that_the_passage_does_not_have_is_not_supported() -> None:
    """Two thirds of the words agree, and the one that counts comes from elsewhere."""
    passage = QuotablePassage(LIMITS, headings="Uploads at Acme")
    assert passage.best_quote("The upload limit for each user of Globex is 42 MB")[1] is False
    assert passage.best_quote("The upload limit for each user of Acme is 42 MB")[1] is True


def test_amounts_are_read_with_their_units() -> None:
    """One name a unit, whatever it is called."""
    assert amounts("5 GB, $7 and 3 天") == {("5", "gb"), ("7", "usd"), ("3", "d")}
    assert same_amounts("no number at all", "")


def test_a_word_beside_its_opposite_turns_nothing_round() -> None:
    """A quote that has both says the same as the sentence may."""
    assert not turned_round("open before noon", "open before noon, closed after six")
    assert turned_round("open after noon", "open before noon")
