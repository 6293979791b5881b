"""Readings of /metrics: what grew between two of them, and readings that say nothing."""

import weakref

import pytest

from gateway.observe.exposition import Course, Growth, Reading, UnusableMetrics


def reading(*lines: str) -> Reading:
    return Reading("".join(f"{line}\n" for line in lines))


def gauge(value: int) -> Reading:
    return reading("# TYPE in_use gauge", f"in_use {value}")


def growth(before: Reading, *later: Reading) -> Growth:
    return Growth([Course(before, *later)])


def test_a_counter_grows_by_what_came_in_between() -> None:
    """One series by its labels, or all of a name."""
    before = reading('calls_total{kind="a"} 3', 'calls_total{kind="b"} 10')
    after = reading('calls_total{kind="a"} 8', 'calls_total{kind="b"} 11')
    assert growth(before, after).of("calls_total", kind="a") == 5
    assert growth(before, after).of("calls_total") == 6


def test_processes_are_added_up() -> None:
    """Each by its own readings."""
    both = Growth([Course(reading("calls_total 1"), reading("calls_total 5"))] * 2)
    assert both.of("calls_total") == 8
    assert both.processes == 2


def test_a_histogram_has_the_mean_of_what_came_in_between() -> None:
    """And none when nothing came."""
    before, after = reading("s_sum 10.0", "s_count 5"), reading("s_sum 16.0", "s_count 8")
    assert growth(before, after).mean("s") == 2.0
    assert growth(before, before).mean("s") is None


def test_a_gauge_has_the_mean_of_all_looks() -> None:
    """Added up over processes; the least of them for sizes; None where one of them hasn't got it."""
    one = Course(*(gauge(value) for value in (1, 2, 6)))
    other = Course(*(gauge(value) for value in (4, 4, 4)))
    both = Growth([one, other])
    assert both.level("in_use") == 7
    assert both.least("in_use") == 4
    assert both.looks == 3
    without = Course(reading("x 1"), reading("x 1"))
    assert Growth([one, without]).level("in_use") is None
    assert Growth([one, without]).least("in_use") is None
    assert growth(gauge(1), reading("x 1")).level("in_use") is None


def test_a_level_is_that_of_all_series_with_these_labels() -> None:
    """Added up, also where one of them comes later; a counter has none."""
    first = reading("# TYPE in_use gauge", 'in_use{name="a",of="x"} 2', 'in_use{name="b"} 50')
    last = reading("# TYPE in_use gauge", 'in_use{name="a",of="x"} 4', 'in_use{name="a",of="y"} 6')
    assert growth(first, last).level("in_use", name="a") == 6
    calls = reading("# TYPE calls_total counter", "calls_total 7")
    assert growth(calls, calls).level("calls_total") is None


def test_what_lies_between_the_first_look_and_the_last_is_not_kept() -> None:
    """However long it is watched, there are two readings of a process in memory."""
    course, between = Course(gauge(1)), gauge(2)
    course.add(between)
    gone = weakref.ref(between)
    del between
    course.add(gauge(6))
    assert gone() is None
    assert Growth([course]).level("in_use") == 3


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
