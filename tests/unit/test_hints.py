"""Hints: what a question names, which spellings of it the index knows, and what is shown of it."""

import time

import pytest

from gateway.retrieval.hints import MOST_SPELLINGS, HintKind, hints_of, known, shown, spellings_of
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of


def named(question: str) -> dict[str, HintKind]:
    """Those that stand in the question as they are; names in words are only candidates."""
    return {hint.value: hint.kind for hint in hints_of(question) if " " not in hint.value}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What does ERR_TIMEOUT_42 mean?", {"ERR_TIMEOUT_42": HintKind.ERROR_CODE}),
        ("支付时报错ERR-TIMEOUT，怎么处理？", {"ERR-TIMEOUT": HintKind.ERROR_CODE}),
        ("ORA00942 or ORA-00942?", {"ORA00942": HintKind.ERROR_CODE, "ORA-00942": HintKind.ERROR_CODE}),
        ("the status 503 of a page with 12 lines", {"503": HintKind.ERROR_CODE}),
        ("错误码：503是什么", {"503": HintKind.ERROR_CODE}),
        ("java.lang.OutOfMemoryError again", {"java.lang.OutOfMemoryError": HintKind.ERROR_CODE}),
        ("告警HighErrorRate怎么关", {"HighErrorRate": HintKind.ALERT}),
        ("the DiskFull alert", {"DiskFull": HintKind.ALERT}),
        ("http_requests_total是什么指标", {"http_requests_total": HintKind.METRIC}),
        ("what is jvm.memory.used", {"jvm.memory.used": HintKind.METRIC}),
        ("payment-service超时", {"payment-service": HintKind.SERVICE}),
        ("db-01.prod.example.com is down", {"db-01.prod.example.com": HintKind.HOST}),
        ("can 10.0.3.7 reach host web7?", {"10.0.3.7": HintKind.HOST, "web7": HintKind.HOST}),
        ("访问example.com失败", {"example.com": HintKind.DOMAIN}),
    ],
)
def test_a_question_names_what_it_is_about(question: str, expected: dict[str, HintKind]) -> None:
    """In English and with Chinese text right around it."""
    assert named(question) == expected


@pytest.mark.parametrize(
    "question",
    [
        "When did COVID-19 and F-16 begin in the U.S., e.g. on YouTube?",
        "Is v1.2.3 or 3.11 newer, see runbook.md and well-known users of WW-II",
        "How many of 503 people came?",
        "什么是退款？",
        "",
    ],
)
def test_prose_names_nothing(question: str) -> None:
    """Numbers, versions, abbreviations, names of films and files."""
    assert named(question) == {}


def test_another_spelling_counts_where_the_index_has_it() -> None:
    """The vocabulary decides: ERR-FOO-1 is ERR_FOO_1, the payment service is payment-service."""
    hints = hints_of("Why does the payment service log ERR-FOO-1, and what is http requests total?")
    written = "ERR_FOO_1 comes from payment-service; see http_requests_total"
    statistics = TermStatistics(9, dict.fromkeys(terms_of(written), 1))
    found = {hint.value: hint.spellings for hint in known(hints, statistics)}
    assert found == {
        "ERR-FOO-1": ("err_foo_1",),
        "payment service": ("payment-service",),
        "http requests total": ("http_requests_total",),
    }


def test_what_the_vocabulary_lacks_is_no_hint() -> None:
    """Words in a row that nobody writes as one name, and codes that occur nowhere."""
    hints = hints_of("What does ERR_FOO mean for the payment service?")
    assert hints
    assert known(hints, TermStatistics(9, {"payment": 3, "servic": 5})) == ()


def test_only_what_a_passage_has_is_shown() -> None:
    """A vocabulary may lag behind a revocation; a passage that was found doesn't. The longer name counts."""
    hints = hints_of("Do http requests total and requests total or ERR_FOO matter?")
    passages = [frozenset(terms_of("http_requests_total, requests_total"))]
    assert [hint.value for hint in shown(hints, passages)] == ["http requests total"]
    assert shown(hints, []) == ()


@pytest.mark.parametrize(
    "question", ["a" * 4000, "Aa" * 2000, "a_" * 2000, "A-b" * 1300, "a b " * 1000, "ERR_X1 " * 600]
)
def test_the_work_is_bounded(question: str) -> None:
    """Whatever is asked, some spellings are looked up and no more."""
    started = time.process_time()
    assert len(spellings_of(hints_of(question))) <= MOST_SPELLINGS
    assert time.process_time() - started < 1


def test_a_list_of_codes_is_cut() -> None:
    """The first ones count."""
    hints = hints_of(" ".join(f"ERR_CODE_{n}" for n in range(500)))
    assert hints[0].value == "ERR_CODE_0"
    assert len(spellings_of(hints)) <= MOST_SPELLINGS < 500
