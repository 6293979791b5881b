"""Conflicts between sources: two values of one thing, and what only looks like it."""

import pytest

from gateway.answer.conflict import Statement, in_conflict, refused_in_conflict
from gateway.answer.evidence import Evidence, GateCheck, GateDecision, RefusalReason
from gateway.retrieval.terms import terms_of
from tests.harness.chunks import sample_chunk


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


DEPOSIT = "What is the deposit for a bicycle?"


def evidence(*texts: str, documents: str = "abcdef") -> tuple[Evidence, ...]:
    """One passage for each text, each of another document unless told otherwise."""
    chunks = (sample_chunk(text, document_id=name) for text, name in zip(texts, documents, strict=False))
    return tuple(Evidence(n, chunk, 0.5, 0.1, "rrf", "dense #1") for n, chunk in enumerate(chunks, start=1))


FIFTY = "Bring a passport. The deposit for a bicycle is 50 EUR. A helmet is free."
EIGHTY = "Open on Sundays. For a bicycle the deposit is 80 EUR."


@pytest.mark.parametrize(
    ("texts", "documents", "found"),
    [
        ((FIFTY, EIGHTY), "ab", True),
        ((EIGHTY, "A helmet costs 3 EUR a day.", FIFTY), "abc", True),
        ((FIFTY, EIGHTY), "aa", False),
        ((FIFTY, "The bicycle deposit is 50 EUR for everybody."), "ab", False),
        ((FIFTY, "The deposit for a canoe is 80 EUR."), "ab", False),
        ((FIFTY,), "a", False),
        ((), "", False),
    ],
)
def test_sources_conflict_where_their_best_sentences_do(
    texts: tuple[str, ...], documents: str, found: bool
) -> None:
    """Of two documents; what one document says of two things is none of it."""
    assert in_conflict(DEPOSIT, evidence(*texts, documents=documents)) is found


async def test_a_policy_may_refuse_what_sources_contradict() -> None:
    """By a reason of its own; what is refused already keeps its reasons, and is not read once more."""
    sufficient, both = GateDecision((), 1.0), evidence(FIFTY, EIGHTY)
    refused = await refused_in_conflict(sufficient, DEPOSIT, both)
    assert refused.reasons == (RefusalReason.SOURCES_CONFLICT,)
    assert refused.checks == (GateCheck("no_conflict", passed=False),)
    agreed = await refused_in_conflict(sufficient, DEPOSIT, both[:1])
    assert (agreed.reasons, agreed.checks) == ((), (GateCheck("no_conflict", passed=True),))
    weak = GateDecision((RefusalReason.BELOW_THRESHOLD,), -1.0)
    assert await refused_in_conflict(weak, DEPOSIT, both) is weak
