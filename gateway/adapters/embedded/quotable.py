"""Quotable: the pieces of evidence that an extractive answer may say, and how well each fits a question."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.sought import sought_by
from gateway.answer.evidence import Evidence
from gateway.answer.prompt import language_of
from gateway.answer.support.sentences import Piece, PieceKind, pieces
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import stem, terms_of

Floats = NDArray[np.float64]

#: what speaks for a piece beside its fit, which weighs 1; fitted, see docs/decisions/0007
PLACE_WEIGHT, CONTEXT_WEIGHT, SOUGHT_WEIGHT = 0.5, 0.8, 0.6
_WORD = re.compile(r"[a-z]+")
#: about what one place among the first passages is worth: one in the question's language goes first
_LANGUAGE_BONUS = 0.5
#: a block of code is long and full of words that are names only; who asks for the way wants it
_CODE_ASKED, _CODE_UNASKED = 0.15, -0.2
_ASKS_FOR_CODE = re.compile(
    r"\bhow (?:do|can|could|should|would|to)\b|\b(?:command|code|example|snippet|run|syntax|config\w*)\b"
    r"|怎么|如何|怎样|命令|代码|示例|配置",
    re.IGNORECASE,
)
#: share of the coverage that counts when the headings above a piece help to reach it
_HEADING_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Quotable:
    """One piece with its passage. ``place`` orders pieces as the evidence has them; ``headings`` are the
    terms of the piece and of the title, section and heading above it. ``prior`` is what its passage and kind
    are worth; ``sought``: whether it has what is asked for.
    """

    n: int
    place: int
    piece: Piece
    terms: frozenset[str]
    headings: frozenset[str]
    prior: float
    sought: bool = False
    above: str = ""
    document: str = ""

    @property
    def quoted(self) -> str:
        """The piece with everything that is written above it."""
        return "\n".join((self.above, self.piece.heading, self.piece.lead, self.piece.text))


@dataclass(frozen=True, slots=True)
class Fits:
    """One value a piece. ``fit``: similarity + coverage, from about 0 to 2; ``worth`` puts them in order."""

    fit: Floats
    worth: Floats

    @property
    def best(self) -> int:
        return int(np.argmax(self.worth))


def quotables(question: str, evidence: Sequence[Evidence]) -> list[Quotable]:
    """Every piece with words that asks nothing and announces nothing; blocks."""
    found: list[Quotable] = []
    sought, worth = sought_by(question), _Prior.of(question)
    for rank, item in enumerate(evidence, start=1):
        chunk = item.chunk
        titles = f"{chunk.title}\n{chunk.section}"
        headings, language = frozenset(terms_of(titles)), language_of(chunk.content)
        for piece in chain.from_iterable(pieces(part.content) for part in item.parts):
            terms = frozenset(terms_of(f"{piece.lead} {piece.text}"))
            if terms and not piece.text.endswith(("?", "？", ":", "：")):
                found.append(
                    Quotable(
                        n=item.n,
                        place=len(found),
                        piece=piece,
                        terms=terms,
                        headings=terms | headings.union(terms_of(piece.heading)),
                        prior=worth.of_piece(rank, language, piece.kind),
                        sought=sought(piece.text),
                        above=titles,
                        document=chunk.document_id,
                    )
                )
    return found


@dataclass(frozen=True, slots=True)
class _Prior:
    """What is known of a piece before its words are looked at."""

    language: str
    code: float

    @classmethod
    def of(cls, question: str) -> "_Prior":
        code = _CODE_ASKED if _ASKS_FOR_CODE.search(question) else _CODE_UNASKED
        return cls(language_of(question), code)

    def of_piece(self, rank: int, language: str, kind: PieceKind) -> float:
        mine = _LANGUAGE_BONUS * (language == self.language) + self.code * (kind is PieceKind.CODE)
        return mine - PLACE_WEIGHT * math.log(rank)


def fits(question: str, options: Sequence[Quotable], vectors: NDArray[np.float32]) -> Fits:
    """Of each piece; ``vectors`` are unit rows of the question and of each piece. IDF is counted over the
    pieces at hand: what all of them say tells nothing, and neither does a term that none of them has.
    """
    covered = _Coverage.of(question, options)
    own, headed, context = covered.own(), covered.headed(), covered.context()
    coverage = (1 - _HEADING_SHARE) * own + _HEADING_SHARE * headed
    fit = np.asarray(vectors[1:] @ vectors[0] + coverage, dtype=np.float64)
    prior = np.array([option.prior + SOUGHT_WEIGHT * option.sought for option in options])
    return Fits(fit, fit + CONTEXT_WEIGHT * context + prior)


@dataclass(frozen=True, slots=True)
class _Coverage:
    """Shares of the question's IDF, one a piece."""

    options: Sequence[Quotable]
    statistics: TermStatistics
    wanted: tuple[str, ...]

    @classmethod
    def of(cls, question: str, options: Sequence[Quotable]) -> "_Coverage":
        frequencies = Counter(term for option in options for term in option.headings)
        asked = (*terms_of(question), *_joined(question))
        wanted = tuple(term for term in asked if frequencies[term])
        return cls(options, TermStatistics(len(options), frequencies), wanted)

    def own(self) -> Floats:
        return self._shares(option.terms for option in self.options)

    def headed(self) -> Floats:
        return self._shares(option.headings for option in self.options)

    def context(self) -> Floats:
        """With the piece before it and with the one after it in turn, their mean: "it" is named beside it."""
        before = [None, *self.options[:-1]]
        after = [*self.options[1:], None]
        sides = (self._beside(before), self._beside(after))
        return (sides[0] + sides[1]) / 2

    def _beside(self, others: Sequence[Quotable | None]) -> Floats:
        return self._shares(
            one.headings | other.terms if other is not None and other.n == one.n else one.headings
            for one, other in zip(self.options, others, strict=True)
        )

    def _shares(self, of_each: Iterator[frozenset[str]]) -> Floats:
        return np.array([self.statistics.coverage(self.wanted, [terms]) for terms in of_each])


def _joined(question: str) -> Iterator[str]:
    """``roll back`` is written ``rollback`` as well, ``log in`` ``login``."""
    for first, second in pairwise(_WORD.findall(question.lower())):
        yield stem(first + second)
