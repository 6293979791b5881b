"""Lexical terms: how text becomes what BM25 and the evidence gate count, the same on every store."""

import functools
import re
from collections.abc import Iterator
from itertools import pairwise

import snowballstemmer

#: part of the splitter version: other terms mean other rows
TERMS_VERSION = "terms/1"

_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
# A code keeps its inner punctuation (ERR_TIMEOUT, v1.2.3, payment-service) and is split as well.
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[._\-][^\W_{_CJK}]+)*")
_PART = re.compile(r"[^\W_]+")
_CJK_RUN = re.compile(rf"[{_CJK}]")
_STEMMER = snowballstemmer.stemmer("english")

STOP_WORDS: frozenset[str] = frozenset(
    "a an and any are as at be been being but by can could did do does doing for from had has have"
    " having he her hers him his how i if in into is it its itself me my of on or our ours out"
    " over own she should so some such than that the their theirs them then there these they this"
    " those to too under until up very was we were what when where which while who whom why will"
    " with would you your yours about please tell".split()
)
_CJK_STOP: frozenset[str] = frozenset(
    "什么 怎么 如何 哪些 哪个 是否 多少 多久 为什 怎样 可以 请问"
    " 我们 你们 他们 这个 那个 的是 是什 么是".split()
)


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """English stem of a lower-case word (Snowball); other scripts pass unchanged."""
    return str(_STEMMER.stemWord(word)) if word.isascii() else word


def iter_terms(text: str) -> Iterator[str]:
    """Terms in order, with repeats: stems, whole codes, and character bigrams for CJK runs."""
    for match in _TOKEN.finditer(text.lower()):
        token = match.group()
        if _CJK_RUN.match(token):
            yield from _bigrams(token)
            continue
        parts = _PART.findall(token)
        if len(parts) > 1:
            yield token
        for part in parts:
            if part not in STOP_WORDS:
                yield stem(part)


def _bigrams(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for pair in map("".join, pairwise(run)):
        if pair not in _CJK_STOP:
            yield pair


def terms_of(text: str) -> tuple[str, ...]:
    return tuple(iter_terms(text))
