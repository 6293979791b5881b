"""What is missing is told in the asker's own words, and is what the gate missed."""

import pytest

from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.missing import MOST_MISSING, missing_words
from gateway.retrieval.terms import terms_of

PASSAGES = [
    frozenset(terms_of("ERR_TIMEOUT: an error of the foo service; see the bar chart. Ask Harald.")),
    frozenset(terms_of("员工每年享有 5 天年假，病假需提前申请。数据库连接超时。")),
]


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("What does ERR_FOO_BAR mean?", ("ERR_FOO_BAR",)),
        ("What does ERR_TIMEOUT mean?", ()),
        ("错误码ERR_FOO_9是什么", ("错误码", "ERR_FOO_9")),
        ("Which error did Sigurd see in 2015?", ("Sigurd", "2015")),
        ("Does Harald know Sigurd?", ("know", "Sigurd")),
        ("Is there a limit for zebras?", ("limit", "zebras")),
        ("婚假有几天？", ("婚假",)),
        ("员工每年有多少天年假？", ()),
        ("请问年假和婚假应该怎么申请？", ("婚假",)),
        ("数据库连接池应该设多大？", ("池",)),
        ("这是什么？", ()),
        ("ERR_FOO_BAR, zebras?", ("ERR_FOO_BAR", "zebras")),
        ("ERR_9Ж", ("ERR_9",)),
        ("数据库连接数？", ()),
    ],
)
def test_words_that_no_passage_has_are_missing(question: str, missing: tuple[str, ...]) -> None:
    """A code as a whole, though its parts stand there; of Chinese the unknown characters alone."""
    assert missing_words(question, PASSAGES) == missing


@pytest.mark.parametrize(
    "question", ["Is it ERR_FOO_BAR in v2.3?", "Ask Sigurd or Olaf", "What of PAY-TIMEOUT"]
)
def test_what_the_gate_misses_is_among_what_is_told(question: str) -> None:
    """One function says both."""
    missed = missing_key_terms(question, PASSAGES)
    assert missed
    assert set(missed) <= set(missing_words(question, PASSAGES))


def test_without_any_passage_every_telling_word_is_missing() -> None:
    """At most 32 of them, each once."""
    assert missing_words("What is the limit of the limit for 婚假？", []) == ("limit", "婚假")
    assert len(missing_words(" ".join(f"word{n}" for n in range(50)), [])) == MOST_MISSING
