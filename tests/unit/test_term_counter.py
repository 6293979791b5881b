"""Counting terms while rows pass by: groups of one class and validity, with few of them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gateway.ingest.plan import ClassTerms
from gateway.ingest.rows import TermCounter
from gateway.retrieval.chunk import FOREVER
from gateway.retrieval.lexicon import ALWAYS, Validity
from gateway.retrieval.store import Row
from tests.unit.test_validator import CHUNK

BUILT_AT = 1_000


def row(*terms: str, valid_from: int = 0, valid_until: int = FOREVER) -> Row:
    chunk = replace(CHUNK, acl_class=1, valid_from=valid_from, valid_until=valid_until)
    return Row(chunk, (1.0, 0.0), terms)


def counted(*rows: Row) -> TermCounter:
    counter = TermCounter(BUILT_AT)
    for each in rows:
        counter.add(each)
    return counter


def groups(counter: TermCounter) -> Mapping[Validity, ClassTerms]:
    return {group.validity: group for group in counter.classes()}


def test_what_is_not_valid_yet_is_counted_apart() -> None:
    """Only questions asked from then on shall hear of it."""
    found = groups(counted(row("refund"), row("refund", "zebra", valid_from=BUILT_AT + 1)))
    assert found[ALWAYS] == ClassTerms(1, 1, {"refund": 1})
    later = Validity(BUILT_AT + 1, FOREVER)
    assert found[later] == ClassTerms(1, 1, {"refund": 1, "zebra": 1}, later)


def test_days_of_publication_make_no_groups() -> None:
    """Every question comes after them; a row a term and document would slow all questions down."""
    found = groups(counted(*(row("refund", valid_from=day) for day in range(BUILT_AT - 20, BUILT_AT + 1))))
    assert found == {ALWAYS: ClassTerms(1, 21, {"refund": 21})}


def test_an_end_is_kept() -> None:
    """Whenever the passage began."""
    found = groups(counted(row("refund", valid_from=5, valid_until=BUILT_AT + 9)))
    assert list(found) == [Validity(0, BUILT_AT + 9)]


def test_the_rarest_word_is_that_of_the_whole_class() -> None:
    """The validator looks for it among all rows of the class."""
    late = row("refund", "zebra", valid_from=BUILT_AT + 1)
    counter = counted(late, row("refund"), row("zebra"), row("zebra"))
    assert counter.rarest(late) == ("refund", 2)


@pytest.mark.parametrize(
    ("validity", "tried"),
    [
        (ALWAYS, (ALWAYS,)),
        (Validity(7, FOREVER), (Validity(7, FOREVER), ALWAYS)),
        (Validity(7, 9), (Validity(7, 9), Validity(0, 9), ALWAYS)),
    ],
)
def test_counts_are_looked_for_from_the_narrowest_on(validity: Validity, tried: tuple[Validity, ...]) -> None:
    """A release may have been built after the passage began, or before dates were counted."""
    assert validity.counted_as() == tried
