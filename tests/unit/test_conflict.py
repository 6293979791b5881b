"""Conflicts between sources: two values of one thing, and what only looks like it."""

import pytest

from gateway.answer.conflict import Statement
from gateway.retrieval.terms import terms_of


def contradict(question: str, one: str, other: str) -> bool:
    """The same from both sides."""
    asked = frozenset(terms_of(question))
    first, second = Statement.of(one), Statement.of(other)
    assert first.contradicts(second, asked) == second.contradicts(first, asked)
    return first.contradicts(second, asked)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (
            "What is the deposit for a bicycle?",
            "The deposit for a bicycle is 50 EUR.",
            "For a bicycle the deposit is 80 EUR.",
        ),
        (
            "How long do returns take?",
            "Returns are accepted within 14 days of delivery.",
            "Returns are accepted up to 30 days after delivery.",
        ),
        (
            "When did the depot in Bremen open?",
            "The depot in Bremen opened in 2015.",
            "The depot in Bremen opened in 2017.",
        ),
        (
            "When does the season begin?",
            "The rental season begins on 1 March.",
            "The rental season begins on 1 April.",
        ),
        ("What port does the agent use?", "The agent uses port 8080.", "The agent uses port 9090."),
        ("自行车的押金是多少？", "自行车押金为50元。", "自行车押金为80元。"),
        ("退货期限是几天？", "退货期限为收货后14天内。", "退货期限为收货后30天内。"),
    ],
)
def test_two_values_of_one_thing_are_a_conflict(question: str, one: str, other: str) -> None:
    """Nearly the same words, one unit, two numbers; whichever comes first."""
    assert contradict(question, one, other)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("How much?", "The deposit for a bicycle is 50 EUR.", "The deposit for a bicycle is 50.00 EUR."),
        ("What is the limit?", "The upload limit is 1,000 users.", "The upload limit is 1000 users."),
        ("How long is it?", "The warranty lasts 24 months.", "The warranty lasts 2 years."),
        (
            "What is the fee for a locker?",
            "The fee for a locker in Bremen is 5 EUR.",
            "The fee for a locker in Hamburg is 7 EUR.",
        ),
        (
            "What does the basic plan cost?",
            "The basic plan costs 5 EUR a month.",
            "The premium plan costs 9 EUR a month.",
        ),
        ("What does it cost?", "A rental of 1 day costs 9 EUR.", "A rental of 3 days costs 20 EUR."),
        ("What is the deposit?", "The deposit for a bicycle is 50 EUR.", "A new tyre takes 3 hours."),
        ("What is the deposit?", "The deposit for a bicycle is 50 EUR.", "The bicycle has a deposit."),
        ("基础版多少钱？", "基础版每月5元。", "专业版每月9元。"),
        ("押金多少？", "自行车押金为50元。", "自行车押金为50元整。"),
    ],
)
def test_what_only_looks_like_one_is_none(question: str, one: str, other: str) -> None:
    """Spellings, other units, other names, a table of prices, another subject."""
    assert not contradict(question, one, other)
