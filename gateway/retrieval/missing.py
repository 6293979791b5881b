"""Missing words: what a question says that none of the passages has, as its asker wrote it."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from gateway.retrieval.asking import telling_parts
from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.terms import is_cjk, terms_of, words_of

MOST_MISSING = 32


def missing_words(question: str, passages: Sequence[Collection[str]]) -> tuple[str, ...]:
    """In the question's order, at most 32: the key terms that the gate misses, and every other word of which
    no passage has any term. Of Chinese text those characters that no passage has beside their neighbours.

    Passages are sets of ``terms_of`` terms, and must be ones that the asker may see.
    """
    key_terms = missing_key_terms(question, passages)
    written = frozenset().union(*passages)
    missing: dict[str, None] = {}
    for word in words_of(question):
        if is_cjk(word):
            missing.update(dict.fromkeys(_missing_runs(word, written)))
        elif word in key_terms or _is_missing(word, written):
            missing[word] = None
    missing.update(dict.fromkeys(key_terms))
    return tuple(missing)[:MOST_MISSING]


def _is_missing(word: str, written: frozenset[str]) -> bool:
    terms = terms_of(word)
    return bool(terms) and written.isdisjoint(terms)


def _missing_runs(text: str, written: frozenset[str]) -> Iterator[str]:
    for part in telling_parts(text):
        yield from _runs_of(part, written)


def _runs_of(part: str, written: frozenset[str]) -> Iterator[str]:
    """A pair of characters over a word's end is in no passage either, so each character is told only when
    neither of its pairs is; a single one when no passage has it at all.
    """
    known = [pair in written or not terms_of(pair) for pair in map("".join, pairwise(part))]
    beside = zip([False, *known], [*known, False], strict=True)
    unknown = (" " if any(pairs) else one for one, pairs in zip(part, beside, strict=True))
    for run in "".join(unknown).split():
        if len(run) > 1 or not any(run in term for term in written):
            yield run
