"""The support check after generation: numbers, units, names, negations and opposites."""

import pytest

from gateway.answer.support.amounts import amounts, numbers, same_amounts
from gateway.answer.support.numerals import in_digits
from gateway.answer.support.opposites import turned_round
from gateway.answer.support.quote import QuotablePassage, supported

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
        ("Requests are answered within five days", "Requests are answered within six days."),
        ("The badge is valid for one year", "The badge is valid for two years."),
        ("A team has up to twenty-five members", "A team has up to twenty members."),
        ("保修期为两年", "保修期为三年。"),
        ("保修期为两年半", "保修期为两年。"),
        ("试用期为半年", "试用期为一年。"),
        ("押金为合同金额的百分之五", "押金为合同金额的百分之十。"),
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
        ("保修期为三年，到期为止", "保修期为3年，到期为止。"),
        ("A team has two members at most", "A team has at most 2 members."),
        ("One of the guards opens the gate", "A guard opens the gate: one of them."),
        ("One of the guards opens the gate", "The guards open the gate of one of the yards."),
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


@pytest.mark.parametrize(
    ("words", "digits"),
    [
        ("within twenty-five days", "within 25 days"),
        ("Two hundred and five euros", "205 euros"),
        ("a hundred users", "100 users"),
        ("one working day", "1 working day"),
        ("one of them, someone, no one", "one of them, someone, no one"),
        ("一百二十天内", "120天内"),
        ("三个月、十五分钟、二十名", "3个月、15分钟、20名"),
        ("二〇二四年", "2024年"),
        ("两年半", "2.5年"),
        ("半小时", "0.5小时"),
        ("一些人十分重视统一日志，哪一年，三四天", "一些人十分重视统一日志，哪一年，三四天"),
    ],
)
def test_a_number_in_words_is_read_as_digits(words: str, digits: str) -> None:
    """Where it counts something: words that only contain one stay."""
    assert in_digits(words) == digits


def test_a_number_word_of_a_question_names_no_amount() -> None:
    """ "Which two areas" asks for two things, and a passage need not count them."""
    assert numbers("Which two areas grew by 2.5 % to 1,000?") == {"2.5", "1000"}


def test_a_word_beside_its_opposite_turns_nothing_round() -> None:
    """A quote that has both says the same as the sentence may."""
    assert not turned_round("open before noon", "open before noon, closed after six")
    assert turned_round("open after noon", "open before noon")
