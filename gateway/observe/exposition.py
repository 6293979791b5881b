"""Readings of /metrics: what has grown between two of them, over all processes of a gateway."""

from collections.abc import Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from gateway.errors import GatewayError

_Name = tuple[str, frozenset[tuple[str, str]]]


class UnusableMetrics(GatewayError):
    """A reading isn't one of a gateway, or the two don't belong together."""

    code = "metrics_unusable"
    title = "These readings of /metrics can't be compared"


class Reading:
    """The samples of one process at one moment."""

    def __init__(self, text: str) -> None:
        """Raises UnusableMetrics for anything that isn't Prometheus' text."""
        try:
            self.samples: Mapping[_Name, float] = {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        except ValueError as error:
            raise UnusableMetrics("this isn't Prometheus' text") from error

    def total(self, name: str, /, **labels: str) -> float | None:
        """The sum of every series of that name with these labels; None when there is none."""
        wanted = labels.items()
        found = [value for (known, its), value in self.samples.items() if known == name and wanted <= its]
        return sum(found) if found else None


class Growth:
    """``readings``: those of each process, in the order of time, at least two."""

    def __init__(self, readings: Sequence[Sequence[Reading]]) -> None:
        self._readings = readings

    @property
    def processes(self) -> int:
        return len(self._readings)

    @property
    def looks(self) -> int:
        """How often each process was read."""
        return min(map(len, self._readings))

    def of(self, name: str, /, **labels: str) -> float:
        """What a counter has grown by, all processes together. Raises UnusableMetrics when it isn't there, or
        has become less, which is what happens when a process is started again.
        """
        return sum(self._grown(each[0], each[-1], name, labels) for each in self._readings)

    def mean(self, name: str, /, **labels: str) -> float | None:
        """Of the values that a histogram got in between; None when it got none."""
        count = self.of(f"{name}_count", **labels)
        return self.of(f"{name}_sum", **labels) / count if count else None

    def level(self, name: str, /, **labels: str) -> float | None:
        """The mean of a gauge over all looks, all processes together; None when one of them hasn't got it."""
        levels = [[reading.total(name, **labels) for reading in each] for each in self._readings]
        known = [[value for value in each if value is not None] for each in levels]
        if any(len(values) != len(each) for values, each in zip(known, levels, strict=True)):
            return None
        return sum(sum(values) / len(values) for values in known)

    def least(self, name: str, /, **labels: str) -> float | None:
        """The smallest last value of a gauge among the processes; None when one of them hasn't got it."""
        last = [each[-1].total(name, **labels) for each in self._readings]
        known = [value for value in last if value is not None]
        return min(known) if len(known) == len(last) else None

    def _grown(self, before: Reading, after: Reading, name: str, labels: Mapping[str, str]) -> float:
        first, last = before.total(name, **labels), after.total(name, **labels)
        if first is None or last is None:
            raise UnusableMetrics(f"there is no {name}: not this gateway's metrics")
        if last < first:
            raise UnusableMetrics(f"{name} has become less: the process was started again, or it is another")
        return last - first
