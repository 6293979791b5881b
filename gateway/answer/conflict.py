"""Conflict: whether two sentences, or two sources, state different amounts or dates of the same thing."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from gateway.answer.evidence import Evidence, GateCheck, GateDecision, RefusalReason
from gateway.answer.support.amounts import amounts
from gateway.answer.support.sentences import pieces
from gateway.retrieval.keyterms import key_terms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of

#: share of the shorter sentence's words that the other one must have
_AGREE = 0.6
_MONTH = re.compile(
    r"\b(January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
_YEAR = re.compile(r"[12][0-9]{3}")
_DIGIT = re.compile(r"[0-9]")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence: its words without numbers, its names, and what it states by unit."""

    words: frozenset[str]
    names: frozenset[str]
    stated: dict[str, frozenset[str]]

    @classmethod
    def of(cls, sentence: str) -> "Statement":
        words = frozenset(term for term in terms_of(sentence) if not _DIGIT.search(term))
        return cls(words, frozenset(key_terms(sentence).names), _by_unit(sentence))

    def contradicts(self, other: "Statement", asked: Collection[str]) -> bool:
        """Conservative: the same names and the same words of the question, most other words too, and exactly
        one unit in which the two share no number. What needs arithmetic (24 hours, 1 day) is none.
        """
        if self.names != other.names or self.words.intersection(asked) != other.words.intersection(asked):
            return False
        shared = self.words & other.words
        if len(shared) < 2 or len(shared) < _AGREE * min(len(self.words), len(other.words)):
            return False
        both = self.stated.keys() & other.stated.keys()
        return sum(self.stated[unit].isdisjoint(other.stated[unit]) for unit in both) == 1


def in_conflict(question: str, evidence: Sequence[Evidence]) -> bool:
    """Whether the sentences of two documents that have most of the question's words contradict each other.

    Words weigh by their IDF among all sentences at hand. Takes tens of ms: nothing for an event loop.
    """
    said = list(_said(evidence))
    frequencies = Counter(term for _, _, terms in said for term in terms)
    statistics = TermStatistics(len(said), frequencies)
    asked = terms_of(question)
    wanted = [term for term in asked if frequencies[term]]
    best: dict[str, tuple[float, str]] = {}
    for document, sentence, terms in said:
        found = (statistics.coverage(wanted, [terms]), sentence)
        if document not in best or found[0] > best[document][0]:
            best[document] = found
    first, *others = sorted(best.values(), key=lambda one: -one[0]) or [(0.0, "")]
    stated = Statement.of(first[1])
    return any(stated.contradicts(Statement.of(sentence), frozenset(asked)) for _, sentence in others)


async def refused_in_conflict(
    decision: GateDecision, question: str, evidence: Sequence[Evidence]
) -> GateDecision:
    """For a policy that wants no answer from sources which contradict each other."""
    if decision.reasons:
        return decision
    conflict = await to_thread.run_sync(in_conflict, question, evidence)
    checks = (*decision.checks, GateCheck("no_conflict", not conflict))
    return replace(decision, reasons=(RefusalReason.SOURCES_CONFLICT,) if conflict else (), checks=checks)


def _said(evidence: Sequence[Evidence]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Documents, their sentences, and those sentences' terms."""
    for item in evidence:
        for part in item.parts:
            for piece in pieces(part.content):
                terms = frozenset(terms_of(f"{piece.lead} {piece.text}"))
                yield part.document_id, piece.text, terms


def _by_unit(sentence: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for number, unit in amounts(sentence):
        found[unit or ("year" if _YEAR.fullmatch(number) else "")].add(_plain(number))
    for month in _MONTH.findall(sentence):
        found["calendar"].add(month)
    return {unit: frozenset(numbers) for unit, numbers in found.items()}


def _plain(number: str) -> str:
    """2.50 is 2.5, 14.0 is 14."""
    return number.rstrip("0").rstrip(".") if number.count(".") == 1 else number
