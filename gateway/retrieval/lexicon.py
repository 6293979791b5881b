"""Term statistics of a release, counted per ACL class, so that no score tells of hidden documents."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.context import Deadline
from gateway.retrieval.query import ScopedQuery


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
    """Where term statistics of released passages are kept."""

    async def statistics(
        self, query: ScopedQuery, terms: Sequence[str], deadline: Deadline
    ) -> TermStatistics:
        """Counted over the query's release and permitted classes only. Raises CatalogUnavailable."""
        ...
