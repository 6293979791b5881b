"""Readings of /metrics: what has grown between two of them, over all processes of a gateway."""

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gateway.errors import GatewayError

_Name = tuple[str, frozenset[tuple[str, str]]]

#: kinds of series that have a level, also where a page doesn't say what they are
_LEVELS = {"gauge", "unknown"}


class UnusableMetrics(GatewayError):
    """A reading isn't one of a gateway, or the two don't belong together."""

    code = "metrics_unusable"
    title = "These readings of /metrics can't be compared"


class Reading:
    """The samples of one process at one moment."""

    def __init__(self, text: str) -> None:
        """Raises UnusableMetrics for anything that isn't Prometheus' text."""
        try:
            families = list(text_string_to_metric_families(text))
        except ValueError as error:
            raise UnusableMetrics("this isn't Prometheus' text") from error
        self.samples: Mapping[_Name, float] = _samples(families)
        self.gauges: Mapping[_Name, float] = _samples(family for family in families if family.type in _LEVELS)

    def total(self, name: str, /, **labels: str) -> float | None:
        """The sum of every series of that name with these labels; None when there is none."""
        found = _of(self.samples, name, labels)
        return sum(found) if found else None


def _samples(families: Iterable[Metric]) -> dict[_Name, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def _of(samples: Mapping[_Name, float], name: str, labels: Mapping[str, str]) -> list[float]:
    wanted = labels.items()
    return [value for (known, its), value in samples.items() if known == name and wanted <= its]


class Course:
    """One process from its first look to its last. Of those in between only the sums of their gauges stay:
    a reading of a real gateway is a quarter of a MiB.
    """

    def __init__(self, *readings: Reading) -> None:
        """``readings``: one at least, in the order of time."""
        self.first = self.last = readings[0]
        self.looks = 0
        self._sums: dict[_Name, float] = {}
        self._seen: dict[_Name, int] = {}
        for reading in readings:
            self.add(reading)

    def add(self, reading: Reading) -> None:
        self.last = reading
        self.looks += 1
        for series, value in reading.gauges.items():
            self._sums[series] = self._sums.get(series, 0.0) + value
            self._seen[series] = self._seen.get(series, 0) + 1

    def mean(self, name: str, labels: Mapping[str, str]) -> float | None:
        """Of a gauge, its series added up; None unless one of them was there at every look."""
        if max(_of(self._seen, name, labels), default=0) < self.looks:
            return None
        return sum(_of(self._sums, name, labels)) / self.looks


class Growth:
    """``courses``: one of each process, of at least two looks."""

    def __init__(self, courses: Sequence[Course]) -> None:
        self._courses = courses

    @property
    def processes(self) -> int:
        return len(self._courses)

    @property
    def looks(self) -> int:
        """How often each process was read."""
        return min(course.looks for course in self._courses)

    def of(self, name: str, /, **labels: str) -> float:
        """What a counter has grown by, all processes together. Raises UnusableMetrics when it isn't there, or
        has become less, which is what happens when a process is started again.
        """
        return sum(_grown(course, name, labels) for course in self._courses)

    def mean(self, name: str, /, **labels: str) -> float | None:
        """Of the values that a histogram got in between; None when it got none."""
        count = self.of(f"{name}_count", **labels)
        return self.of(f"{name}_sum", **labels) / count if count else None

    def level(self, name: str, /, **labels: str) -> float | None:
        """The mean of a gauge over all looks, all processes together; None when one of them hasn't got it."""
        means = [course.mean(name, labels) for course in self._courses]
        known = [mean for mean in means if mean is not None]
        return sum(known) if len(known) == len(means) else None

    def least(self, name: str, /, **labels: str) -> float | None:
        """The smallest last value of a gauge among the processes; None when one of them hasn't got it."""
        last = [course.last.total(name, **labels) for course in self._courses]
        known = [value for value in last if value is not None]
        return min(known) if len(known) == len(last) else None


def _grown(course: Course, name: str, labels: Mapping[str, str]) -> float:
    first, last = course.first.total(name, **labels), course.last.total(name, **labels)
    if first is None or last is None:
        raise UnusableMetrics(f"there is no {name}: not this gateway's metrics")
    if last < first:
        raise UnusableMetrics(f"{name} has become less: the process was started again, or it is another")
    return last - first
