"""Terms, coverage and key terms: what BM25 and the gate count."""

import sys
import threading
from collections.abc import Iterator
from itertools import product
from types import FrameType

import pytest

from gateway.retrieval import keyterms
from gateway.retrieval.keyterms import KeyTerms, key_terms, missing_key_terms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import stem, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Refunds are refunded", ("refund", "refund")),
        (
            "ERR_TIMEOUT in payment-service",
            ("err_timeout", "err", "timeout", "payment-service", "payment", "servic"),
        ),
        ("v1.2.3", ("v1.2.3", "v1", "2", "3")),
        ("10,000 users", ("10000", "user")),
        ("lists 1,2 and 3,45", ("list", "1", "2", "3", "45")),
        ("退款的期限是多久", ("退款", "期限")),
        ("在线支付", ("在线", "线支", "支付")),
        ("目的", ("目的",)),
        ("错误ERR_9怎么办", ("错误", "err_9", "err", "9", "么办")),
        ("How long does it take?", ()),
        ("", ()),
    ],
)
def test_text_becomes_terms(text: str, terms: tuple[str, ...]) -> None:
    """Stems, whole codes with their parts, and Han bigrams without grammar."""
    got = terms_of(text)
    assert [term for term in got if term != "么办"] == [term for term in terms if term != "么办"]


def test_coverage_is_the_share_of_idf_in_the_best_passage() -> None:
    """Rare terms weigh more; passages aren't added up; no terms are covered by nothing."""
    statistics = TermStatistics(passages=10, frequencies={"common": 10, "rare": 1})
    both = statistics.coverage(["common", "rare"], [{"common"}, {"rare"}])
    assert 0.9 < both < 1
    assert statistics.coverage(["common", "rare"], [{"common", "rare"}]) == 1
    assert statistics.coverage(["rare"], []) == 0
    assert statistics.coverage([], [{"common"}]) == 0


@pytest.mark.parametrize(
    ("question", "codes", "names"),
    [
        ("What does ERR_FOO_999 mean?", ("ERR_FOO_999",), ()),
        ("错误ERR_FOO_999怎么办", ("ERR_FOO_999",), ()),
        ("Which alert is PAY-TIMEOUT on pay-db-03?", ("PAY-TIMEOUT", "pay-db-03"), ()),
        ("What raises TimeoutException in v2.3?", ("TimeoutException", "v2.3"), ()),
        ("HTTP status 42?", ("42",), ()),
        ("What did we spend in 2015?", ("2015",), ()),
        ("2015年的预算", ("2015",), ()),
        ("Is a refund allowed after 7 days or 100 hours?", (), ()),
        ("退款30天内可以吗，100元呢", (), ()),
        ("What costs $1200 or 10GB on the 21st in the 1990s?", (), ()),
        ("Where is Harald Hardrada on Monday?", (), ("harald", "hardrada")),
        ("Resetting Your Password", (), ()),
        ("Is it WW-II? The VPN", (), ()),
    ],
)
def test_codes_numbers_and_names_are_key_terms(
    question: str, codes: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Quantities are not: a passage may answer them with another number."""
    assert key_terms(question) == KeyTerms(codes, names)


PASSAGE = frozenset(
    terms_of(
        "Upgrade to version 2.3 of Python 3.11. A timeout exception means ERR-FOO-999; the limit is 10,000."
        " Harald's iPhone 12 has COVID 19."
    )
)


@pytest.mark.parametrize(
    "code",
    [
        "v2.3",
        "Python3.11",
        "TimeoutException",
        "ERR_FOO_999",
        "10000",
        "iPhone12",
        "COVID-19",
        "Harald Olafson",
    ],
)
def test_another_spelling_of_a_key_term_counts(code: str) -> None:
    """Dashes, camel case, a thousands comma, a version's v; of several names one is enough."""
    assert missing_key_terms(f"what about {code} then", [PASSAGE]) == ()


@pytest.mark.parametrize("code", ["ERR_FOO_998", "ERR_FOO_99", "v2.4", "2.4", "Python3.12", "Sigurd"])
def test_a_key_term_no_passage_has_is_missing(code: str) -> None:
    """A neighbouring number is another thing."""
    assert missing_key_terms(f"what about {code} then", [PASSAGE]) == (code,)
    assert missing_key_terms(f"what about {code} then", []) == (code,)


def test_the_parts_of_a_code_are_not_the_code() -> None:
    """Three words somewhere in a passage don't name an error."""
    passage = frozenset(terms_of("err on the side of foo 7"))
    assert missing_key_terms("What is ERR_FOO_7?", [passage]) == ("ERR_FOO_7",)


@pytest.fixture
def eager_switching() -> Iterator[None]:
    """Threads take turns inside almost every call."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_switching")
def test_threads_that_stem_at_the_same_time_get_the_stems_of_their_own_words() -> None:
    """A model's thread counts terms while the event loop does: a wrong stem would stay cached."""
    endings = ("ational", "fulness", "ing", "ization", "ously", "ability", "ements", "ies")
    words = ["".join(parts) for parts in product("bdfg", "aeou", "lmnr", "kpst", endings)]
    stem.cache_clear()
    alone = {word: stem(word) for word in words}
    stem.cache_clear()
    found: list[dict[str, str]] = []

    def run(mine: list[str]) -> None:
        found.append({word: stem(word) for word in mine})

    threads = [threading.Thread(target=run, args=(words[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {word: got for each in found for word, got in each.items()} == alone


def work(question: str, passages: list[frozenset[str]]) -> int:
    """Calls, and characters handed over, while the key terms of a question are looked for."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        if event == "call" and frame.f_code.co_filename == keyterms.__file__:
            handed = [value for value in frame.f_locals.values() if isinstance(value, str)]
            counted += 1 + sum(map(len, handed))
        elif event == "c_call":
            counted += 1

    missing_key_terms(question, passages)  # stems stay cached, and stemming isn't what is counted
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        missing_key_terms(question, passages)
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.parametrize(
    ("word", "digits"), [("{} and", "0123456789"), ("ERR_{}", "0123456789"), ("a Nab{}o", "abcdefghij")]
)
def test_the_work_grows_no_faster_than_the_question(word: str, digits: str) -> None:
    """4,000 characters of numbers, codes or names mustn't keep other questions waiting."""
    passages = [frozenset(f"term{n}" for n in range(i, 1800, 6)) for i in range(6)]
    names = ["".join(four) for four in product(digits, repeat=4)]
    short, long = (" ".join(map(word.format, names[1000 : 1000 + n])) for n in (100, 400))
    assert work(long, passages) < 4.5 * work(short, passages)
    assert work(long, passages) < 100 * len(long) + 2 * 1800


def test_more_codes_than_a_question_has_are_missing() -> None:
    """The first 32 are looked up; a list of codes is never answered for the sake of them."""
    codes = [f"ERR_{n}" for n in range(40)]
    passages = [frozenset(terms_of(" ".join(codes)))]
    assert missing_key_terms(" ".join(codes[:32]), passages) == ()
    assert missing_key_terms(" ".join(codes), passages) == tuple(codes[32:])


def test_a_name_may_begin_a_longer_term() -> None:
    """With more than three letters; other names before it change nothing."""
    passages = [frozenset({"haraldson", "bobby"}), frozenset({"harbour"})]
    assert missing_key_terms("ask Zacharias or Harald", passages) == ()
    assert missing_key_terms("ask Bob", passages) == ("Bob",)
    assert missing_key_terms("ask Haraldsonville", passages) == ("Haraldsonville",)
