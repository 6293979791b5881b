"""Lexical terms: how text becomes what BM25 and the evidence gate count, the same on every store."""

import functools
import re
import threading
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

import snowballstemmer

#: part of the splitter version: other terms mean other rows
TERMS_VERSION = "terms/2"

_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
# A code keeps its inner punctuation (ERR_TIMEOUT, v1.2.3, payment-service) and is split as well.
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[._\-][^\W_{_CJK}]+)*")
# 10,000 and 10000 are one number
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PART = re.compile(r"[^\W_]+")
_CJK_RUN = re.compile(rf"[{_CJK}]")
#: longer ones come once and are not kept
_WORD_CHARS = 64


class _OfThread(threading.local):
    """A stemmer keeps the word it works on in itself: two threads in one give each other wrong stems."""

    def __init__(self) -> None:
        self.stemmer = snowballstemmer.stemmer("english")


_OF_THREAD = _OfThread()

STOP_WORDS: frozenset[str] = frozenset(
    "a an and any are as at be been being but by can could did do does doing for from had has have"
    " having he her hers him his how i if in into is it its itself me my of on or our ours out"
    " over own she should so some such than that the their theirs them then there these they this"
    " those to too under until up very was we were what when where which while who whom why will"
    " with would you your yours about please tell many much kind sort long often ever mean means happen"
    " happens take takes get gets got".split()
)
_CJK_STOP: frozenset[str] = frozenset(
    "什么 怎么 如何 哪些 哪个 是否 多少 多久 为什 怎样 可以 请问"
    " 我们 你们 他们 这个 那个 的是 是什 么是".split()
)
# A pair across one of these is grammar, not a word; without such pairs the gate's AUC on Chinese
# rises from .936 to .947 and BM25 finds no less (docs/decisions/0003). The words are exceptions.
_CJK_GRAMMAR = frozenset("的了吗呢吧么哪谁是在和与")
_CJK_WORDS: frozenset[str] = frozenset(
    "目的 了解 了结 存在 现在 在线 在职 在校 在途 内在 外在 实在 和平 和解 总和 饱和 与会 参与 给与".split()
)


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """English stem of a lower-case word (Snowball); numbers and other scripts pass unchanged."""
    return str(_OF_THREAD.stemmer.stemWord(word)) if word.isascii() and not word.isdigit() else word


def iter_terms(text: str) -> Iterator[str]:
    """Terms in order, with repeats: stems, whole codes, and character bigrams for CJK runs."""
    words = words_of(text.lower())
    plain = text.isascii() and max(map(len, words), default=0) <= _WORD_CHARS
    return chain.from_iterable(map(_of_word if plain else _of_token, words))


def words_of(text: str) -> list[str]:
    """Words and runs of CJK characters in order, as they are written."""
    return _TOKEN.findall(join_thousands(text))


def is_cjk(word: str) -> bool:
    return not word.isascii() and _CJK_RUN.match(word) is not None


def join_thousands(text: str) -> str:
    return _THOUSANDS.sub("", text) if "," in text else text


def _of_token(token: str) -> Iterable[str]:
    if is_cjk(token):
        return _bigrams(token)
    return _of_word(token) if len(token) <= _WORD_CHARS else _made_of(token)


def _made_of(word: str) -> tuple[str, ...]:
    parts = _PART.findall(word)
    whole = (word,) if len(parts) > 1 else ()
    return (*whole, *(stem(part) for part in parts if part not in STOP_WORDS))


_of_word = functools.lru_cache(maxsize=65_536)(_made_of)


def _bigrams(run: str) -> Iterator[str]:
    if len(run) == 1 and run not in _CJK_GRAMMAR:
        yield run
    for pair in map("".join, pairwise(run)):
        if pair in _CJK_WORDS or (pair not in _CJK_STOP and _CJK_GRAMMAR.isdisjoint(pair)):
            yield pair


def terms_of(text: str) -> tuple[str, ...]:
    return tuple(iter_terms(text))
