"""Readings of /metrics: what grew between two of them, and readings that say nothing."""

import pytest

from gateway.observe.exposition import Growth, Reading, UnusableMetrics


def reading(*lines: str) -> Reading:
    return Reading("".join(f"{line}\n" for line in lines))


def growth(before: Reading, *later: Reading) -> Growth:
    return Growth([[before, *later]])


def test_a_counter_grows_by_what_came_in_between() -> None:
    """One series by its labels, or all of a name."""
    before = reading('calls_total{kind="a"} 3', 'calls_total{kind="b"} 10')
    after = reading('calls_total{kind="a"} 8', 'calls_total{kind="b"} 11')
    assert growth(before, after).of("calls_total", kind="a") == 5
    assert growth(before, after).of("calls_total") == 6


def test_processes_are_added_up() -> None:
    """Each by its own readings."""
    both = Growth([[reading("calls_total 1"), reading("calls_total 5")]] * 2)
    assert both.of("calls_total") == 8
    assert both.processes == 2


def test_a_histogram_has_the_mean_of_what_came_in_between() -> None:
    """And none when nothing came."""
    before, after = reading("s_sum 10.0", "s_count 5"), reading("s_sum 16.0", "s_count 8")
    assert growth(before, after).mean("s") == 2.0
    assert growth(before, before).mean("s") is None


def test_a_gauge_has_the_mean_of_all_looks() -> None:
    """Added up over processes; the least of them for sizes; None where one of them hasn't got it."""
    one = [reading(f"in_use {value}") for value in (1, 2, 6)]
    other = [reading(f"in_use {value}") for value in (4, 4, 4)]
    both = Growth([one, other])
    assert both.level("in_use") == 7
    assert both.least("in_use") == 4
    assert both.looks == 3
    assert Growth([one, [reading("x 1"), reading("x 1")]]).level("in_use") is None
    assert Growth([one, [reading("x 1"), reading("x 1")]]).least("in_use") is None


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("calls_total 7\n", "calls_total 2\n", "started again"),
        ("other_total 1\n", "other_total 2\n", "no calls_total"),
        ("calls_total 1\n", "", "no calls_total"),
    ],
)
def test_readings_that_do_not_belong_together_are_refused(before: str, after: str, said: str) -> None:
    """A restart between them, another program, a page that is empty."""
    with pytest.raises(UnusableMetrics, match=said):
        growth(Reading(before), Reading(after)).of("calls_total")


@pytest.mark.parametrize("text", ["<html><body>Bad gateway</body></html>", "a{b\n", "a b c d\n", '{"a": 1}'])
def test_what_is_no_exposition_is_refused(text: str) -> None:
    """A proxy's page, half a file."""
    with pytest.raises(UnusableMetrics):
        Reading(text)
