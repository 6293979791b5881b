"""Counted terms of the in-memory catalog: groups of one ACL class and validity, added up and taken apart."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gateway.ingest.plan import ClassTerms
from gateway.retrieval.lexicon import TermStatistics, Validity
from gateway.retrieval.query import ScopedQuery

#: what one revision has counted
Counted = dict[tuple[int, Validity], ClassTerms]


def statistics(counted: Counted, query: ScopedQuery, terms: Iterable[str]) -> TermStatistics:
    seen = [
        group
        for (acl_class, validity), group in counted.items()
        if acl_class in query.scope.permitted_classes and validity.holds(query.at)
    ]
    sums = {term: sum(group.frequencies.get(term, 0) for group in seen) for term in terms}
    return TermStatistics(
        passages=sum(group.passages for group in seen),
        frequencies={term: number for term, number in sums.items() if number},
    )


def store(classes: Iterable[ClassTerms]) -> Counted:
    return {(group.acl_class, group.validity): group for group in classes}


def move(counted: Counted, acl_class: int, terms: ClassTerms) -> None:
    """Counts a document's passages in the class of ``terms``, and no longer in this one."""
    _add(counted, replace(terms, validity=subtract(counted, acl_class, terms)))


def subtract(counted: Counted, acl_class: int, terms: ClassTerms) -> Validity:
    """Counts some passages no longer in this class. As of what validity they were counted."""
    tried = terms.validity.counted_as()
    validity = next((known for known in tried if (acl_class, known) in counted), None)
    if validity is None:
        return terms.validity
    left = counted[acl_class, validity]
    frequencies = Counter(left.frequencies)
    frequencies.subtract(terms.frequencies)
    passages = left.passages - terms.passages
    counted[acl_class, validity] = replace(left, passages=passages, frequencies=+frequencies)
    if passages <= 0:
        del counted[acl_class, validity]
    return validity


def _add(counted: Counted, terms: ClassTerms) -> None:
    group = terms.acl_class, terms.validity
    there = counted.get(group, ClassTerms(terms.acl_class, 0, {}, terms.validity))
    counted[group] = replace(
        there,
        passages=there.passages + terms.passages,
        frequencies=Counter(there.frequencies) + Counter(terms.frequencies),
    )
