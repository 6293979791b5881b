"""Term statistics of a release, by ACL class and validity, so that no score tells of hidden documents."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.context import Deadline
from gateway.retrieval.chunk import FOREVER
from gateway.retrieval.query import ScopedQuery


@dataclass(frozen=True, slots=True, order=True)
class Validity:
    """When passages count, in seconds since the epoch: from ``valid_from`` on and before ``valid_until``."""

    valid_from: int = 0
    valid_until: int = FOREVER

    @classmethod
    def of(cls, valid_from: int | None, valid_until: int | None) -> "Validity":
        """Of a document; None is unbounded."""
        return cls(valid_from or 0, FOREVER if valid_until is None else valid_until)

    def holds(self, at: int) -> bool:
        return self.valid_from <= at < self.valid_until

    def since(self, at: int) -> "Validity":
        """The same for every question asked from ``at`` on; so what has begun by then is counted together."""
        return self if self.valid_from > at else Validity(0, self.valid_until)

    def counted_as(self) -> tuple["Validity", ...]:
        """Where a release may count passages of this validity, to be tried in this order: as it is; as begun
        when the release was built; as unbounded, in a release built before validity was counted.
        """
        return tuple(dict.fromkeys((self, Validity(0, self.valid_until), ALWAYS)))


ALWAYS = Validity()


@dataclass(frozen=True, slots=True)
class TermStatistics:
    """Document frequencies among the passages one caller may see.

    ``passages`` is how many there are; ``frequencies`` has the asked terms that occur at all.
    """

    passages: int
    frequencies: Mapping[str, int]

    def idf(self, term: str) -> float:
        """Robertson-Sparck Jones weight with the +1 that keeps it positive (as in Lucene's BM25)."""
        seen = self.frequencies.get(term, 0)
        return math.log(1 + (self.passages - seen + 0.5) / (seen + 0.5))

    def coverage(self, question: Sequence[str], passages: Iterable[Collection[str]]) -> float:
        """Share of the question's IDF found in the best single passage, in [0, 1].

        Passages are sets of terms. A question without terms is covered by nothing.
        """
        wanted = {term: self.idf(term) for term in set(question)}
        total = sum(wanted.values())
        if total <= 0:
            return 0.0
        return max(
            (sum(w for term, w in wanted.items() if term in terms) / total for terms in passages),
            default=0.0,
        )


class Lexicon(Protocol):
    """Where term statistics of released passages are kept.

    A release built before validity was counted has its passages counted at any time, until the next is built.
    """

    async def statistics(
        self, query: ScopedQuery, terms: Sequence[str], deadline: Deadline
    ) -> TermStatistics:
        """Counted over those passages of the query's release that are of a permitted class and valid at its
        moment, and no others. Raises CatalogUnavailable, DeadlineExceeded.
        """
        ...
