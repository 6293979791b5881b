"""What a question names counts; Chinese words that only ask don't."""

import pytest

from gateway.answer.signals import ReadPassage, Wanted
from gateway.retrieval.asking import telling_terms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of

LEAVE = ReadPassage.reading("员工休假制度\n婚假", "婚假 10 天，登记之日起 12 个月内一次休完。")


@pytest.mark.parametrize(
    ("question", "terms"),
    [
        ("婚假有几天？", ("婚假",)),
        ("如何申请退款？", ("申请", "请退", "退款")),
        ("请问ERR_FOO_7是什么意思？", ("err_foo_7", "err", "foo", "7", "意思")),
        ("有几个？", terms_of("有几个")),
        ("税？", ("税",)),
        ("How many days of the leave, 1,000?", ("day", "leav", "1000")),
    ],
)
def test_pairs_across_a_word_that_asks_do_not_count(question: str, terms: tuple[str, ...]) -> None:
    """A question without any other keeps them, and no other language has any."""
    assert telling_terms(question) == terms


def test_a_short_chinese_question_is_covered_by_the_passage_that_answers_it() -> None:
    """Its own word stands there; of 有几 and 几天, which no passage has, the rest would be made."""
    statistics = TermStatistics(100, {"婚假": 2})
    assert Wanted.of(telling_terms("婚假有几天？"), statistics).coverage([LEAVE]) == 1
    assert Wanted.of(terms_of("婚假有几天？"), statistics).coverage([LEAVE]) < 0.5
