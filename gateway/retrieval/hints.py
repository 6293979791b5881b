"""Hints: codes, alerts, metrics, services, hosts and domains that a question names and the index knows.

A hint is only ever looked up in the vocabulary of the passages its asker may see, and it only raises
passages that the ordinary routes may find as well: it decides nothing and leaves nothing out.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, islice

from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import STOP_WORDS, stem

#: spellings of one question that are looked up; a text of nothing but codes is no question
MOST_SPELLINGS = 96
_MOST_HINTS = 200
#: a name said in more words than this is a sentence
_MOST_WORDS = 4

_TAG = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z0-9]+(?:[._\-][A-Za-z0-9]+)*(?![A-Za-z0-9_])")
_NOT_SPOKEN = re.compile(r"[^A-Za-z0-9 ]+")
_SEPARATOR = re.compile(r"[._\-]")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]+")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NUMBERED = re.compile(r"[A-Z]+-?\d{3,}")
_NAMES_A_CODE = re.compile(
    r"(?:error|code|status|http|errno|exit|错误码?|代码|状态码|返回码)\s*[:：#=]?\s*$", re.IGNORECASE
)
_SAYS_ALERT = re.compile(r"alert|alarm|firing|告警|警报|报警", re.IGNORECASE)
_SAYS_HOST = re.compile(
    r"\b(?:host|server|node|machine|instance)\b|主机|节点|服务器|机器|实例", re.IGNORECASE
)
_SERVICES: frozenset[str] = frozenset(
    "service services svc api server worker gateway proxy queue scheduler consumer producer cluster db"
    " database cache broker operator controller agent".split()
)
_ENDINGS: frozenset[str] = frozenset(
    "com org net io dev cn eu uk de fr jp us ai app cloud edu gov local internal corp lan intra svc".split()
)
_FILES: frozenset[str] = frozenset(
    "md py js ts go rs java json yaml yml toml xml csv html css txt log conf cfg ini sh sql pdf docx xlsx zip"
    " gz png jpg".split()
)
_FAULTS = ("Error", "Exception", "Failure", "Fault")
#: a longer tag names nothing
_MOST_CHARS = 100
#: characters on each side of a tag that can tell what it is
_WINDOW = 16


class HintKind(StrEnum):
    ERROR_CODE = "error_code"
    ALERT = "alert"
    METRIC = "metric"
    SERVICE = "service"
    HOST = "host"
    DOMAIN = "domain"


@dataclass(frozen=True, slots=True)
class Hint:
    """``value`` stands in the question; ``spellings`` are the index terms that would mean it."""

    kind: HintKind
    value: str
    spellings: tuple[str, ...]


def hints_of(question: str) -> tuple[Hint, ...]:
    """What could be one, in order; those written out first. Nothing is known of the index yet."""
    left = MOST_SPELLINGS
    found: dict[str, Hint] = {}
    for hint in islice(chain(_written(question), _spoken(question)), _MOST_HINTS):
        if hint.value not in found:
            left -= len(hint.spellings)
            if left < 0:
                break
            found[hint.value] = hint
    return tuple(found.values())


def spellings_of(hints: Iterable[Hint]) -> tuple[str, ...]:
    """All of them, each once."""
    return tuple(dict.fromkeys(term for hint in hints for term in hint.spellings))


def known(hints: Iterable[Hint], statistics: TermStatistics) -> tuple[Hint, ...]:
    """Those that occur in passages of the caller's classes, with the spellings that do."""
    return tuple(found for hint in hints if (found := _narrowed(hint, statistics.frequencies)))


def shown(hints: Iterable[Hint], passages: Iterable[Collection[str]]) -> tuple[Hint, ...]:
    """Those that one of these passages (sets of terms) really has; of one within another, the longer.

    A vocabulary may lag behind a revocation, so only a permitted passage proves that there is a hint.
    """
    written = frozenset().union(*passages)
    there = [found for hint in hints if (found := _narrowed(hint, written))]
    words = [frozenset(hint.value.split()) for hint in there]
    return tuple(h for h, own in zip(there, words, strict=True) if not any(own < other for other in words))


def _narrowed(hint: Hint, terms: Collection[str]) -> Hint | None:
    spellings = tuple(term for term in hint.spellings if term in terms)
    return replace(hint, spellings=spellings) if spellings else None


def _written(question: str) -> Iterator[Hint]:
    """Tags as they stand in the question."""
    for match in _TAG.finditer(question):
        tag, start, end = match.group(), match.start(), match.end()
        before, after = question[max(0, start - _WINDOW) : start], question[end : end + _WINDOW]
        kind = _kind(tag, before, after) if len(tag) <= _MOST_CHARS else None
        if kind is not None:
            yield Hint(kind, tag, _spelled(tag, kind))


def _kind(tag: str, before: str, after: str) -> HintKind | None:
    around = f"{before} {after}"
    if tag.isdigit():
        return HintKind.ERROR_CODE if len(tag) > 1 and _NAMES_A_CODE.search(before) else None
    if "." in tag:
        return _kind_of_dotted(tag, around)
    if not any(c.isalpha() for c in tag):
        return None
    if "_" in tag:
        return HintKind.METRIC if tag.islower() else HintKind.ERROR_CODE
    if tag.isupper():
        return HintKind.ERROR_CODE if _NUMBERED.fullmatch(tag) or _is_shouted(tag) else None
    if tag.islower():
        return _kind_of_lower(tag, around)
    return _kind_of_humps(tag, around)


def _kind_of_dotted(tag: str, around: str) -> HintKind | None:
    """Versions and decimals, abbreviations and names of files are none; of a class its own name counts."""
    if _ADDRESS.fullmatch(tag):
        return HintKind.HOST
    labels = tag.lower().split(".")
    if any(len(label) < 2 for label in labels) or labels[-1] in _FILES or not labels[-1].isalpha():
        return None
    if labels[-1] in _ENDINGS:
        return HintKind.HOST if len(labels) > 2 or any(c.isdigit() for c in labels[0]) else HintKind.DOMAIN
    return HintKind.METRIC if tag.islower() else _kind_of_humps(tag.rpartition(".")[2], around)


def _is_shouted(tag: str) -> bool:
    """PAY-TIMEOUT and ERR-IO-1 are, WW-II and COVID-19 are not."""
    parts = tag.split("-")
    worded = len(parts) == 2 and all(map(str.isalpha, parts)) and max(map(len, parts)) > 3
    return worded or len(parts) > 2


def _kind_of_lower(tag: str, around: str) -> HintKind | None:
    parts = tag.split("-")
    if len(parts) > 1 and not _SERVICES.isdisjoint(parts) and not parts[-1].isdigit():
        return HintKind.SERVICE
    numbered = tag[-1].isdigit() and tag[0].isalpha()
    if numbered and (_SAYS_HOST.search(around) or not _SERVICES.isdisjoint(parts)):
        return HintKind.HOST
    return None


def _kind_of_humps(tag: str, around: str) -> HintKind | None:
    """TimeoutException, HighErrorRate; of two humps (YouTube) only with a word that says so."""
    humps = _HUMP.findall(tag)
    if "".join(humps) != tag or len(humps) < 2:
        return None
    if tag.endswith(_FAULTS):
        return HintKind.ERROR_CODE
    return HintKind.ALERT if len(humps) > 2 or _SAYS_ALERT.search(around) else None


def _spelled(tag: str, kind: HintKind) -> tuple[str, ...]:
    """As the index may write it: ERR-FOO-1 is ERR_FOO_1, HighErrorRate is high_error_rate.

    A number, a host and a domain are what they are.
    """
    lower = tag.lower()
    whole = (lower if _SEPARATOR.search(tag) else stem(lower),)
    if kind in (HintKind.HOST, HintKind.DOMAIN) or tag.isdigit():
        return whole
    name = tag.rpartition(".")[2]
    humps = _HUMP.findall(name)
    parts = humps if len(humps) > 1 and "".join(humps) == name else _SEPARATOR.split(tag)
    if len(parts) < 2:
        return whole
    lowered = [part.lower() for part in parts]
    joined = (separator.join(lowered) for separator in "_-.")
    return tuple(dict.fromkeys((*whole, *joined, stem("".join(lowered)))))


def _spoken(question: str) -> Iterator[Hint]:
    """Names said in words: the payment service, http requests total. Only an index that writes them with a
    ``-`` or ``_`` makes anything of them, and prose writes many words with a ``-``.
    """
    untagged = _TAG.sub(lambda tag: tag[0] if tag[0].isalnum() else "|", question)
    for words in map(str.split, _NOT_SPOKEN.split(untagged)):
        for size in range(_MOST_WORDS, 1, -1):
            for start in range(len(words) - size + 1):
                parts = [word.lower() for word in words[start : start + size]]
                if parts[0] in STOP_WORDS or parts[-1] in STOP_WORDS:
                    continue
                value = " ".join(words[start : start + size])
                if parts[-1] in _SERVICES:
                    yield Hint(HintKind.SERVICE, value, ("-".join(parts), "_".join(parts)))
                else:
                    yield Hint(HintKind.METRIC, value, ("_".join(parts),))
