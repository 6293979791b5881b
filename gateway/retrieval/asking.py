"""Asking: what a question names, without the Chinese words that only ask.

A pair of characters across such a word (有几, 几天) is in hardly any passage, so its weight would be that of
a rare word: 婚假有几天 would be four fifths grammar.
"""

import re
from collections.abc import Iterator

from gateway.retrieval.terms import is_cjk, terms_of, words_of

_ASKING = re.compile(
    r"请问|什么|怎么样?|怎样|如何|是否|能否|多少|多久|多大|多长|为什么|可以|应该|需要|我们|你们"
    r"|[的了吗呢吧么哪谁是在和与有几]"
)


def telling_terms(question: str) -> tuple[str, ...]:
    """Each once, in order; all terms of a question that does nothing but ask."""
    terms = dict.fromkeys(term for part in _parts(question) for term in terms_of(part))
    return tuple(terms) or tuple(dict.fromkeys(terms_of(question)))


def telling_parts(run: str) -> Iterator[str]:
    """Of a run of CJK characters; what is left of it between two words that ask is one character no more."""
    for part in _ASKING.split(run):
        if len(part) > 1 or part == run:
            yield part


def _parts(question: str) -> Iterator[str]:
    for word in words_of(question):
        if is_cjk(word):
            yield from telling_parts(word)
        else:
            yield word
