"""Quotes: the piece of a passage that carries a sentence, and a plain check that it does."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from gateway.answer.support.amounts import same_amounts
from gateway.answer.support.opposites import turned_round
from gateway.answer.support.sentences import Piece, pieces

Terms = Callable[[str], Iterable[str]]

_TERM = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+(?:[._\-][^\W_\u3400-\u9fff]+)*")
_NEGATION = re.compile(r"\b(?:not|no|never|none|nobody|cannot|without)\b|n['’]t\b|[不没無无未勿]|禁止")
#: capitals inside a sentence; a name that the passage doesn't have at all comes from elsewhere
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][^\W_]{2,}")
_FILLERS = frozenset(
    "a an the of to in on at by for and or is are was were be it this that as with from".split()
)


def plain_terms(text: str) -> Iterator[str]:
    """Lower-case words without fillers; a Han run is taken as pairs of characters."""
    for token in _TERM.findall(text.lower()):
        if "\u3400" <= token[0] <= "\u9fff":
            yield from map("".join, pairwise(token)) if len(token) > 1 else token
        elif token not in _FILLERS:
            yield token


def quote_for(sentence: str, content: str, terms: Terms = plain_terms) -> str:
    """The piece of the passage, verbatim, that shares most with the sentence; empty for none."""
    return QuotablePassage(content, terms).best_quote(sentence)[0]


class QuotablePassage:
    """A passage's pieces and their terms, read once for all the sentences that cite it."""

    def __init__(self, content: str, terms: Terms = plain_terms, headings: str = "") -> None:
        self._content = content
        self._known = f"{headings}\n{content}".lower()
        self._terms = terms
        self._pieces = pieces(content)
        self._read = [_read(piece) for piece in self._pieces]
        self._sets = [frozenset(terms(text)) for text in self._read]

    def best_quote(self, sentence: str) -> tuple[str, bool]:
        """The best piece and whether it supports the sentence; two neighbours where one isn't enough."""
        if not self._pieces:
            return "", False
        wanted = set(self._terms(sentence))
        named = all(name.lower().removesuffix("s") in self._known for name in _NAME.findall(sentence))
        shares = [_overlap(wanted, own) for own in self._sets]
        best = shares.index(max(shares))
        if named and _supports(wanted, self._sets[best], sentence, self._read[best]):
            return self._pieces[best].source, True
        for first in (best - 1, best):
            pair = self._pieces[first : first + 2] if first >= 0 else []
            both = " ".join(map(_read, pair))
            # A neighbour that adds no term must not lend its numbers or its negation.
            terms = frozenset(self._terms(both))
            adds = named and len(pair) == 2 and _overlap(wanted, terms) > shares[best]
            if adds and _supports(wanted, terms, sentence, both):
                return _span(self._content, pair), True
        return self._pieces[best].source, False


def supported(sentence: str, quote: str, terms: Terms = plain_terms) -> bool:
    """A plain check, no proof: three fifths of the terms, every number with its unit, the same negation, and
    no word turned into its opposite.
    """
    return _supports(set(terms(sentence)), frozenset(terms(quote)), sentence, quote)


def negated(text: str) -> bool:
    """Whether a word of it denies something; which one, and what, isn't known."""
    return _NEGATION.search(text.lower()) is not None


def _supports(wanted: set[str], terms: frozenset[str], sentence: str, quote: str) -> bool:
    """``wanted`` and ``terms`` are those of the sentence and of the quote."""
    if not wanted or _overlap(wanted, terms) < 0.6:
        return False
    if not same_amounts(sentence, quote) or turned_round(sentence, quote):
        return False
    return negated(sentence) == negated(quote)


def _read(piece: Piece) -> str:
    return f"{piece.lead} {piece.text}" if piece.lead else piece.text


def _overlap(wanted: set[str], terms: frozenset[str]) -> float:
    return len(wanted.intersection(terms)) / len(wanted) if wanted else 0.0


def _span(content: str, pair: list[Piece]) -> str:
    start = content.find(pair[0].source)
    end = content.find(pair[1].source, start) + len(pair[1].source)
    return content[start:end]
