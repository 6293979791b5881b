"""Targets: what the project set out to reach on the sets it names, and what was reached."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """One figure of one set; ``most`` turns the bound round."""

    labelled: str
    figure: str
    bound: float
    most: bool = False

    def reached_by(self, value: float) -> bool:
        return value <= self.bound if self.most else value >= self.bound


TARGETS = (
    Target("squad_en", "recall@5", 0.97),
    Target("squad_en", "MRR", 0.90),
    Target("cmrc_zh", "recall@5", 0.99),
    Target("cmrc_zh", "MRR", 0.95),
    Target("squad_en", "false refusals", 0.05, most=True),
    Target("squad_en", "false acceptances", 0.10, most=True),
    Target("cmrc_zh", "false refusals", 0.05, most=True),
    Target("cmrc_zh", "false acceptances", 0.10, most=True),
    Target("squad_en", "near misses caught", 0.40),
    Target("squad_en", "answers with the gold string", 0.85),
)
_SPEED_P95_MS = 200


def markdown(found: Mapping[str, Any]) -> str:
    """A line a target that this evaluation says something about, over all articles and the held-out ones; and
    in words what is missed on the latter.
    """
    return "\n".join([*_lines(found), "", *_missed(found)]) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "| set | figure | target | all articles | held out |"
    yield "|---|---|---|---|---|"
    for target in TARGETS:
        one = found["sets"].get(target.labelled)
        if one is not None and target.figure in one["figures"]:
            sign = "≤" if target.most else "≥"
            cells = [_cell(target, one[part].get(target.figure)) for part in ("figures", "held_out")]
            bound = f"{sign} {target.bound:.2f}"
            yield f"| {target.labelled} | {target.figure} | {bound} | {cells[0]} | {cells[1]} |"
    speed = found.get("speed")
    if speed:
        yield from _speed_lines(speed)


def _speed_lines(speed: Mapping[str, Any]) -> Iterator[str]:
    """The target is of the retrieval stage."""
    for stage, times in speed["ms"].items():
        if times and stage != "search":
            p95 = times["p95"]
            verdict = "reached" if p95 <= _SPEED_P95_MS else "MISSED"
            what = f"{stage}, {speed['chunks']} passages, {speed['callers']} callers, p95"
            yield f"| | {what} | ≤ {_SPEED_P95_MS} ms | {p95:g} ms, {verdict} | |"


def _missed(found: Mapping[str, Any]) -> Iterator[str]:
    """By how much, and whether that is more than noise."""
    missed = []
    for target in TARGETS:
        figure = found["sets"].get(target.labelled, {}).get("held_out", {}).get(target.figure)
        if figure is not None and not target.reached_by(figure["value"]):
            missed.append(f"- {target.labelled}, {target.figure}: {_distance(target, figure)}.")
    if not missed:
        yield "On held-out articles no target is missed."
        return
    yield "Missed on held-out articles:"
    yield ""
    yield from missed


def _distance(target: Target, figure: Mapping[str, float]) -> str:
    beside = f"{figure['value']:.3f} where {target.bound:.2f} is wanted, {_off(target, figure):.3f} off"
    if figure["low"] <= target.bound <= figure["high"]:
        return f"{beside}; with so few questions it may be reached all the same"
    return f"{beside}, which is more than noise"


def _off(target: Target, figure: Mapping[str, float]) -> float:
    return abs(figure["value"] - target.bound)


def _cell(target: Target, figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['value']:.3f}, {'reached' if target.reached_by(figure['value']) else 'MISSED'}"
