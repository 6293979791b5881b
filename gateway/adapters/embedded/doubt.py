"""Doubt: whether sentences that are about a question may still not answer it ("right topic, answer missing").

A model that writes can say so by itself; one that quotes needs a check of its own.
"""

import re
from dataclasses import astuple, dataclass
from enum import StrEnum

from gateway.answer.support.amounts import amounts, numbers
from gateway.answer.support.opposites import turned_round
from gateway.retrieval.keyterms import key_terms
from gateway.retrieval.terms import terms_of

_DENIES = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|unable|except)\b|n['’]t\b"
    r"|[不没無无未非勿]|禁止|除了",
    re.IGNORECASE,
)
#: what may say the same in other words
_TURNS_DOWN = re.compile(
    r"\b(?:hidden|hide\w*|until|only|forbid\w*|forbidden|prohibit\w*|bann?\w*|exclu\w+|refus\w*|reject\w*|lack\w*"
    r"|fail\w*|unlike|rather|instead|least|stop\w*|avoid\w*|prevent\w*|un\w{4,}able)\b|只|仅|拒绝|避免",
    re.IGNORECASE,
)

#: by the order of the fields of Doubts; fitted by ``python -m eval.doubt``, figures in docs/decisions/0021
WEIGHTS = (1.0, -3.5, -1.3, -2.0, -1.2)
#: of answerable questions 1 % are below the first, 7 % more below the second
NO_ANSWER_BELOW, DOUBTFUL_BELOW = -0.82, 0.52


class Verdict(StrEnum):
    ANSWER = "answer"
    DOUBTFUL = "doubtful"
    NO_ANSWER = "no_answer"


@dataclass(frozen=True, slots=True)
class Doubts:
    """What speaks against an answer, each in [0, 1], and ``fit``: similarity + coverage of its best sentence.

    ``negation``: the question denies and the quoted text doesn't; ``names``: share of the question's names
    that aren't quoted; ``numbers``: one of its numbers isn't; ``opposite``: a word of it stands there only as
    its opposite.
    """

    fit: float
    negation: float
    names: float
    numbers: float
    opposite: float

    @classmethod
    def of(cls, question: str, quoted: str, fit: float) -> "Doubts":
        """``quoted`` is the best sentence with the headings above it."""
        denied = bool(_DENIES.search(quoted) or _TURNS_DOWN.search(quoted))
        written = frozenset(terms_of(quoted))
        names = key_terms(question).names
        return cls(
            fit=fit,
            negation=float(bool(_DENIES.search(question)) and not denied),
            names=sum(name not in written for name in names) / len(names) if names else 0.0,
            numbers=float(not numbers(question) <= {number for number, _ in amounts(quoted)}),
            opposite=float(turned_round(question, quoted)),
        )

    @property
    def score(self) -> float:
        """Higher is better; no probability."""
        values: tuple[float, ...] = astuple(self)
        return sum(weight * value for weight, value in zip(WEIGHTS, values, strict=True))

    @property
    def verdict(self) -> Verdict:
        """Written so that a NaN is no answer."""
        if not self.score >= NO_ANSWER_BELOW:
            return Verdict.NO_ANSWER
        return Verdict.ANSWER if self.score >= DOUBTFUL_BELOW else Verdict.DOUBTFUL
