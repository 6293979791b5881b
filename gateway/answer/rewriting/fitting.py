"""Fitting: what of a model's text may stand for a follow-up. To the gateway it is text of a stranger."""

import re
from collections.abc import Iterable, Sequence

from gateway.answer.followup import has_word, stands_alone, telling_words
from gateway.answer.reuse.wording import plain_wording
from gateway.answer.support.quote import negated
from gateway.observe.hooks import RewriteSkip
from gateway.retrieval.terms import terms_of

MAX_CHARS = 400

#: what a question is written with besides letters and digits; anything else only if it was said
_MARKS = frozenset(" ?.,:;!'’\"()-/%&？。，、：；！“”‘’（）")
#: a pronoun to whoever looks for words
_DEPARTMENT = "IT"
_ASKING = ("?", "？")
#: they tell nothing by themselves, and set limits all the same
_LIMITS = frozenset({"over", "under", "until"})
_QUOTES = ('""', "“”", "「」", "''")


def fitting(text: str, question: str, history: Sequence[str]) -> str | RewriteSkip:
    """The rewritten question, or why it is none.

    It is one line of plain characters that stands alone, has every telling word of the follow-up, asks where
    that asks and denies where that denies, and adds no telling word and no negation that neither of them has.
    """
    told = _unquoted(text.strip())
    said = (question, *history)
    if not told:
        return RewriteSkip.EMPTY
    if len(told) > MAX_CHARS or not _is_plain(told, said):
        return RewriteSkip.MALFORMED
    told = plain_wording(told)
    if not stands_alone(told) or _drops(told, question) or _adds(told, said):
        return RewriteSkip.STRAYED
    return told


def _unquoted(text: str) -> str:
    inside = text[1:-1]
    quoted = len(text) > 1 and text[0] + text[-1] in _QUOTES and not {text[0], text[-1]} & set(inside)
    return inside.strip() if quoted else text


def _is_plain(told: str, said: Sequence[str]) -> bool:
    """No line ends, no controls, nothing that can't be seen."""
    known = _MARKS.union(*said)
    return told.isprintable() and all(char.isalnum() or char in known for char in told)


def _has_all(text: str, words: Iterable[str]) -> bool:
    terms = frozenset(terms_of(text))
    return all(has_word(word, terms, text) for word in words)


def _drops(told: str, question: str) -> bool:
    if question.rstrip().endswith(_ASKING) and not told.endswith(_ASKING):
        return True
    return (negated(question) and not negated(told)) or not _has_all(told, telling_words(question))


def _adds(told: str, said: Sequence[str]) -> bool:
    if negated(told) and not any(map(negated, said)):
        return True
    words, text = telling_words(told), "\n".join(said)
    if _limits(told) - _limits(text):
        return True
    if _DEPARTMENT in words and _DEPARTMENT not in telling_words(text):
        return True
    return not _has_all(text, words)


def _limits(text: str) -> frozenset[str]:
    return _LIMITS.intersection(re.findall("[a-z]+", text.lower()))
