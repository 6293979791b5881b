"""Follow-ups by rules: which questions lean on the one before, and what they are searched as."""

import pytest

from gateway.answer.followup import leans, standing_alone

LEANING = [
    "And for contractors?",
    "and in Germany?",
    "What about interns?",
    "How about part-time staff?",
    "Why?",
    "How long?",
    "Is it paid?",
    "Who approves them?",
    "What does that mean?",
    "And E-42?",
    "那退货呢？",
    "实习生呢？",
    "那合同工有几天？",
    "它多少钱？",
    "为什么？",
]
STANDING = [
    "What is PTO?",
    "What does ERR_FOO_999 mean?",
    "What is the capital of Mongolia?",
    "And how long does a break-glass session last?",
    "And what is the limit of an upload?",
    "How long does it take to get a badge?",
    "Is it allowed to bring a dog?",
    "Who approves expenses that exceed 500 euros?",
    "How many days of leave do contractors have?",
    "退货期限是几天？",
    "今天上海的天气怎么样？",
    "合同工的年假有几天？",
]


@pytest.mark.parametrize("question", LEANING)
def test_a_question_that_says_too_little_leans_on_the_one_before(question: str) -> None:
    """Ellipsis, pronouns, and what names nothing itself; in both languages."""
    assert leans(question)


@pytest.mark.parametrize("question", STANDING)
def test_a_question_that_says_what_it_is_about_stands_alone(question: str) -> None:
    """History must not change what it finds."""
    assert not leans(question)


@pytest.mark.parametrize(
    ("question", "before", "searched"),
    [
        (
            "And for contractors?",
            "How many vacation days do employees get?",
            "And for contractors? (vacation days employees)",
        ),
        ("And E-42?", "What does error code E-41 mean?", "And E-42? (error code)"),
        ("Is it paid?", "Is parental leave paid?", "Is it paid? (parental leave)"),
        ("那合同工呢？", "员工的年假有几天？", "那合同工呢？（员工 年假有）"),
        ("And for contractors?", "Why?", ""),
    ],
)
def test_only_telling_words_of_the_question_before_are_carried(
    question: str, before: str, searched: str
) -> None:
    """None twice, and no code beside one that takes its place."""
    assert standing_alone(question, before) == searched
