"""The figures of an index check, put together: recall, quantiles over all rounds, spread of their medians."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadtest.overhead_round import Quantiles

#: the production cap of one search, in ms (``retrieval_cap_ms``)
CAP_MS = 200
_HEAD = (
    f"{'':28}{'route':>6}{'at':>3}{'recall':>8}{'p50 ms':>8}{'of rounds':>16}{'p95':>8}{'p99':>8}"
    f"{'over cap':>9}{'own CPU ms':>12}"
)


def summary(side: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry a case, route and number of callers.

    Times in ms; ``over_cap`` is a share; pairs are least and most of the rounds.
    """
    by_series: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for one in side["rounds"]:
        for series in one:
            by_series.setdefault((series["case"], series["route"], series["callers"]), []).append(series)
    return [
        {
            "case": case,
            "route": route,
            "callers": callers,
            **_together(each, side["cases"][case]["kinds"]),
            "p50_spread": _spread(statistics.median(one["ms"]) for one in each),
            "reads_per_s": _spread(one["reads_per_s"] for one in each),
            "own_cpu_ms": _spread(one["own_cpu_ms"] for one in each),
            "store_cpu_ms": _spread(one["store_cpu_ms"] for one in each),
        }
        for (case, route, callers), each in by_series.items()
    ]


def ef_summary(side: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry a case and ``ef``."""
    return [
        {"case": one["case"], "ef": one["ef"], **_together([one], side["cases"][one["case"]]["kinds"])}
        for one in side["efs"]
    ]


def _together(each: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> dict[str, Any]:
    ms = [value for one in each for value in one["ms"]]
    recall = [value for one in each for value in one["recall"]]
    of_kind: dict[str, list[float]] = {}
    for one in each:
        for kind, value in zip(kinds, one["recall"], strict=False):  # words are asked fewer questions
            of_kind.setdefault(kind, []).append(value)
    times = Quantiles.of(ms)
    return {
        "p50": times.p50,
        "p95": times.p95,
        "p99": times.p99,
        "over_cap": round(sum(value > CAP_MS for value in ms) / len(ms), 4),
        "recall": round(statistics.mean(recall), 4),
        "recall_by_kind": {kind: round(statistics.mean(values), 4) for kind, values in of_kind.items()},
    }


def _spread(values: Iterator[float]) -> tuple[float, float]:
    each = list(values)
    return round(min(each), 1), round(max(each), 1)


def table(found: Mapping[str, Any]) -> str:
    """For the terminal."""
    lines: list[str] = []
    for name in [key for key, side in found.items() if isinstance(side, dict) and "summary" in side]:
        lines += _side_lines(f"{name}, {found[name].get('index', '')}", found[name])
    before, after = (found["load_average"][when][0] for when in ("before", "after"))
    lines.append(f"load average {before:.2f} -> {after:.2f}, {found['seconds']:.0f} s")
    return "\n".join(lines)


def _side_lines(name: str, side: Mapping[str, Any]) -> Iterator[str]:
    wrote = side["written"]
    yield (
        f"{name} {side['server_version']}, {wrote['rows']} rows: {wrote['rows_per_s']} rows/s written, "
        f"sealed in {wrote['sealing_s']} s, indexed {wrote['then_indexing_s']} s later; {side['usage']}"
    )
    yield _HEAD
    for one in side["summary"]:
        spread, cpu = (f"{low:g}-{high:g}" for low, high in (one["p50_spread"], one["own_cpu_ms"]))
        yield (
            f"{one['case']:28}{one['route']:>6}{one['callers']:>3}{one['recall']:>8.3f}{one['p50']:>8.1f}"
            f"{spread:>16}{one['p95']:>8.1f}{one['p99']:>8.1f}{one['over_cap']:>9.1%}{cpu:>12}"
        )
    for one in side["ef_summary"]:
        yield (
            f"{one['case']:28}ef {one['ef']:<6}{one['recall']:>8.3f}{one['p50']:>8.1f}"
            f"{'':16}{one['p95']:>8.1f}"
        )
