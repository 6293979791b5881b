"""Key terms: the codes, numbers and names without which a passage can't be about the question."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from gateway.retrieval.terms import STOP_WORDS, join_thousands, stem

_WORD = re.compile(r"[A-Za-z0-9\u00c0-\u024f]+(?:[._\-][A-Za-z0-9\u00c0-\u024f]+)*")
_CAMEL = re.compile(r"[A-Z]?[a-z\u00df-\u024f]+|[A-Z\u00c0-\u00de]+(?![a-z])|\d+(?:\.\d+)*")
_LETTERS_OR_DIGITS = re.compile(r"[^\W\d_]+|\d+(?:\.\d+)*")
_NUMBER = re.compile(r"\d+(?:[.\-]\d+)*")
# 2nd, 1950s, 30s, 5min, 10GB: quantities, which a passage may say in another way
_QUANTITY = re.compile(
    r"\d+(?:\.\d+)?(?:st|nd|rd|th|s|ms|m|min|mins|h|hr|hrs|d|k|x|px|b|kb|mb|gb|tb|kg|g|km|cm|mm)",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"\s*(?:%|percent|per\b|milli|second|sec|minute|min|hour|day|working|business|week|month|year|people|person"
    r"|user|time|euro|dollar|pound|usd|eur|rmb|[kmgt]?b\b|bytes?\b|kg\b|km\b|天|日|小时|个|分钟|秒|周|月|岁"
    r"|元|次|人|倍|美元|万|亿|米|公里|公斤|名|位|条)",
    re.IGNORECASE,
)
_NAMES_A_NUMBER = re.compile(
    r"(?:error|code|status|version|release|port|ticket|article|section|form|no\.?|#|§|错误码?|代码|状态码|版本|端口"
    r"|第|编号|工单)\s*[:：#]?\s*$",
    re.IGNORECASE,
)
_MONEY = re.compile(r"[$€£¥￥]\s*$")
_SENTENCE_START = re.compile(r"(?:^|[.?!:;。？！：；\"“(\-–—])\s*$")
#: characters on each side of a word that can tell what it is
_WINDOW = 32
#: more codes than this are not looked up: a text of nothing but codes is no question
_MOST_CODES = 32
_CALENDAR: frozenset[str] = frozenset(
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july"
    " august september october november december christmas easter english".split()
)


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """``codes`` (numbers among them) must each be in the evidence; of ``names`` at least one must.

    Labelled questions misspell one name in twenty, so a single missing name proves nothing.
    """

    codes: tuple[str, ...]
    names: tuple[str, ...]


def key_terms(question: str) -> KeyTerms:
    """Codes as written; names as stems, none from a question set in Title Case."""
    codes, names = _written(question)
    return KeyTerms(codes, tuple(names))


def missing_key_terms(question: str, passages: Iterable[Collection[str]]) -> tuple[str, ...]:
    """Key terms that no passage has, as the question writes them; passages are sets of ``terms_of`` terms.

    Of more than 32 codes those that were not looked up count as missing.
    """
    codes, names = _written(question)
    if not (codes or names):
        return ()
    each = [frozenset(terms) for terms in passages]
    written = frozenset().union(*each)
    squashed = frozenset(map(_squash, written)) if codes else written
    missing = [code for code in codes[:_MOST_CODES] if not _has_code(code, each, squashed)]
    missing.extend(codes[_MOST_CODES:])
    if names and not _has_a_name(names, written):
        missing.extend(names.values())
    return tuple(dict.fromkeys(missing))


def _written(question: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Codes, and names by their stems, each as written."""
    codes: list[str] = []
    names: dict[str, str] = {}
    titled = False
    question = join_thousands(question)
    for match in _WORD.finditer(question):
        word, start, end = match.group(), match.start(), match.end()
        before, after = question[max(0, start - _WINDOW) : start], question[end : end + _WINDOW]
        if _is_code(word, before, after):
            codes.append(word)
        elif word[0].isupper() and not _SENTENCE_START.search(before):
            titled = titled or (word.lower() in STOP_WORDS and word != "I")
            for name in _name_stems(word):
                names.setdefault(name, word)
    return tuple(dict.fromkeys(codes)), {} if titled else names


def _is_code(word: str, before: str, after: str) -> bool:
    if _NUMBER.fullmatch(word):
        return _is_key_number(word, before, after)
    if _QUANTITY.fullmatch(word):
        return False
    has_digit = any(c.isdigit() for c in word)
    inner_capital = re.search(r"[a-z][A-Z]", word) is not None
    return "_" in word or has_digit or inner_capital or _is_shouted_code(word)


def _is_shouted_code(word: str) -> bool:
    """PAY-TIMEOUT is one, WW-II is not."""
    parts = re.split(r"[._\-]", word)
    return word.isupper() and len(parts) > 1 and max(map(len, parts)) > 3


def _is_key_number(word: str, before: str, after: str) -> bool:
    """A quantity is a condition to compare, which a passage may answer with another number."""
    if _NAMES_A_NUMBER.search(before):
        return True
    year = len(word) == 4 and word[0] in "12" and not _UNIT.match(after.removeprefix("年"))
    if _MONEY.search(before) or (_UNIT.match(after) and not year):
        return False
    return len(word) >= 3 and not word.startswith("0")


def _name_stems(word: str) -> Iterator[str]:
    for part in re.split(r"[._\-]", word):
        lower = part.lower()
        if len(part) > 2 and not part.isupper() and lower not in STOP_WORDS | _CALENDAR:
            yield stem(lower)


def _has_code(code: str, passages: list[frozenset[str]], squashed_terms: frozenset[str]) -> bool:
    lower = code.lower()
    squashed = _squash(lower)
    if squashed in squashed_terms:
        return True
    spellings = {lower, stem(lower), squashed, squashed.removeprefix("v"), lower.removeprefix("v")}
    apart = _written_apart(code)
    return any(
        not spellings.isdisjoint(terms) or any(terms.issuperset(parts) for parts in apart)
        for terms in passages
    )


def _squash(code: str) -> str:
    """ERR-FOO-1 is ERR_FOO_1; a version keeps its points."""
    return code.replace("_", "").replace("-", "")


def _written_apart(code: str) -> list[set[str]]:
    """TimeoutException as "timeout exception", Python3 as "Python 3"."""
    if "_" in code:
        return []
    splits = (_CAMEL.findall(code), _LETTERS_OR_DIGITS.findall(code))
    return [{stem(part.lower()) for part in parts} for parts in splits if parts]


def _has_a_name(names: Collection[str], written: frozenset[str]) -> bool:
    """One of them, or a term that begins with one of more than three letters."""
    if not written.isdisjoint(names):
        return True
    ordered = sorted(written)
    for name in names:
        following = bisect_left(ordered, name)
        if len(name) > 3 and following < len(ordered) and ordered[following].startswith(name):
            return True
    return False
