"""The manifest hash: a sum that entries can leave and enter."""

import itertools

from gateway.ingest.manifest import Entry, changed_hash, manifest_hash

A: Entry = ("chunk-a", "content-a", 1, "unreviewed")
B: Entry = ("chunk-b", "content-b", 1, "unreviewed")
A_ELSEWHERE: Entry = ("chunk-a", "content-a", 2, "unreviewed")


def test_the_order_of_entries_does_not_matter() -> None:
    """A base has none."""
    assert len({manifest_hash(entries) for entries in itertools.permutations([A, B, A_ELSEWHERE])}) == 1


def test_every_part_of_an_entry_counts() -> None:
    """Also how often there is one, and where a part ends."""
    others: list[list[Entry]] = [
        [],
        [A, A],
        [("chunk-", "acontent-a", 1, "unreviewed")],
        [("chunk-a", "content-b", 1, "unreviewed")],
        [A_ELSEWHERE],
        [("chunk-a", "content-a", 1, "approved")],
    ]
    assert len({manifest_hash(entries) for entries in [[A], *others]}) == 1 + len(others)


def test_an_entry_that_goes_and_one_that_comes_change_the_hash_as_if_counted_again() -> None:
    """Whatever the others are."""
    stored = manifest_hash([A, B])
    assert changed_hash(stored, [A]) == manifest_hash([B])
    assert changed_hash(stored, [A], [A_ELSEWHERE]) == manifest_hash([A_ELSEWHERE, B])
    assert changed_hash(stored, [A, B]) == manifest_hash([])
    assert changed_hash(manifest_hash([]), [], [A, B]) == stored


def test_a_hash_of_the_form_before_cannot_be_changed() -> None:
    """It has to be made anew from all entries."""
    assert changed_hash("0123456789abcdef0123456789abcdef", [A]) is None
