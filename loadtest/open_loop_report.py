"""The figures of an open-loop run: outcomes, latencies from the due moment, and whether it counts at all."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadtest.client_record import Ending, Record
from loadtest.open_loop_run import DRIVER_EXHAUSTED

#: what the driver may be late by, in ms, before a run says more about the driver than about the server
LAG_P99_MS = 10.0
_LATENCIES = ("headers_ms", "meta_ms", "first_delta_ms", "last_ms", "server_ttft_ms", "gap_ms")
_CODED = (Ending.REJECTED, Ending.ERROR, Ending.REVOKED, Ending.UNREACHABLE)


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """n, p50, p95, p99 and max of what is there, in its own unit; None when there is nothing."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    cuts = statistics.quantiles(found, n=100, method="inclusive") if len(found) > 1 else found * 99
    return {
        "n": len(found),
        "p50": round(cuts[49], 2),
        "p95": round(cuts[94], 2),
        "p99": round(cuts[98], 2),
        "max": round(found[-1], 2),
    }


def summary(
    records: Sequence[Record], *, seconds: float, settle_s: float = 0.0, lag_p99_ms: float = LAG_P99_MS
) -> dict[str, Any]:
    """Everything that the table shows. Goodput counts answers that ended between ``settle_s`` and
    ``seconds``, a second of that time; latencies are those of answered questions.
    """
    answered = [record for record in records if record.ending is Ending.ANSWERED]
    lag = spread(record.lag_ms for record in records)
    why = invalid(records, lag, lag_p99_ms)
    return {
        "valid": not why,
        "invalid_because": why,
        "asked": len(records),
        "asked_per_s": round(len(records) / seconds, 2),
        "goodput_per_s": round(_ended_within(answered, settle_s, seconds) / (seconds - settle_s), 2),
        "lag_ms": lag,
        "outcomes": {ending.value: sum(r.ending is ending for r in records) for ending in Ending},
        "codes": {ending.value: _codes(records, ending) for ending in _CODED},
        "left": dict(sorted(Counter(r.left.value for r in records if r.left is not None).items())),
        "lost": sum(record.lost for record in records),
        "answered": {name: spread(getattr(r, name) for r in answered) for name in _LATENCIES},
        "rejected_ms": spread(r.last_ms for r in records if r.ending is Ending.REJECTED),
        "acknowledged": _acknowledged(records),
    }


def invalid(records: Sequence[Record], lag: Mapping[str, float] | None, lag_p99_ms: float) -> list[str]:
    """Why nothing of the run may be believed; empty when it may."""
    why = []
    if lag is None:
        why.append("nothing was asked")
    elif lag["p99"] > lag_p99_ms:
        why.append(f"the driver was late: p99 {lag['p99']:g} ms, at most {lag_p99_ms:g}")
    exhausted = sum(record.code == DRIVER_EXHAUSTED for record in records)
    if exhausted:
        why.append(f"the driver had no descriptor or port for {exhausted} questions")
    return why


def _ended_within(answered: Sequence[Record], first_s: float, last_s: float) -> int:
    ends = [record.at + (record.last_ms or 0.0) / 1000 for record in answered]
    return sum(first_s <= end < last_s for end in ends)


def _codes(records: Sequence[Record], ending: Ending) -> dict[str, int]:
    codes = Counter(record.code or "none" for record in records if record.ending is ending)
    return dict(sorted(codes.items()))


def _acknowledged(records: Sequence[Record]) -> dict[str, Any]:
    """From the last event to the answer to our acknowledgement, by its status."""
    acked = [record for record in records if record.ack_ms is not None]
    return {
        "ms": spread((r.ack_ms or 0.0) - (r.last_ms or 0.0) for r in acked),
        "statuses": dict(Counter(str(record.ack_status) for record in acked)),
    }


def table(found: Mapping[str, Any]) -> str:
    """For the terminal."""
    outcomes = ", ".join(f"{name} {count}" for name, count in found["outcomes"].items() if count)
    lines = [
        f"asked {found['asked']} ({found['asked_per_s']:g}/s), answered {found['goodput_per_s']:g}/s",
        f"outcomes: {outcomes}; admitted and lost: {found['lost']}",
    ]
    for ending, codes in found["codes"].items():
        if codes:
            lines.append(f"  {ending}: " + ", ".join(f"{code} {count}" for code, count in codes.items()))
    if found["left"]:
        lines.append("  left: " + ", ".join(f"{phase} {count}" for phase, count in found["left"].items()))
    lines.append(f"{'ms from the moment it was due':32}{'n':>7}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}")
    for name, one in found["answered"].items():
        lines += _row(f"answered: {name.removesuffix('_ms').replace('_', ' ')}", one)
    lines += _row("rejected: whole answer", found["rejected_ms"])
    lines += _row("acknowledged, after the end", found["acknowledged"]["ms"])
    lines += _row("the driver's own lag", found["lag_ms"])
    lines += [f"NOT VALID: {why}" for why in found["invalid_because"]]
    return "\n".join(lines)


def _row(title: str, one: Mapping[str, float] | None) -> list[str]:
    if one is None:
        return []
    return [f"{title:32}{one['n']:>7}" + "".join(f"{one[c]:>10.1f}" for c in ("p50", "p95", "p99", "max"))]
