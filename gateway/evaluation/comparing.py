"""Comparing: two evaluations side by side, and what of the difference is more than noise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gateway.evaluation.figures import LOWER_IS_BETTER, Values, contributions, resampled

#: differences that can't be told from rounding
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one set, before and after, with the 95 % interval of the difference.

    ``paired``: the same questions were asked, so what is hard about them cancels out.
    """

    labelled: str
    figure: str
    before: float
    after: float
    low: float
    high: float
    paired: bool

    @property
    def worse(self) -> bool:
        """Beyond the noise, in the direction that nobody wants."""
        if self.figure in LOWER_IS_BETTER:
            return self.low > _NOTHING
        return self.high < -_NOTHING

    @property
    def better(self) -> bool:
        if self.figure in LOWER_IS_BETTER:
            return self.high < -_NOTHING
        return self.low > _NOTHING


def compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Every figure that both have, of every set that both have; the seed is the second one's."""
    found: list[Difference] = []
    for name in before["sets"]:
        if name in after["sets"]:
            found += _of_set(name, before["sets"][name], after["sets"][name], after["seed"])
    return found


def _of_set(
    name: str, before: Mapping[str, Any], after: Mapping[str, Any], seed: int
) -> Iterator[Difference]:
    one, other = contributions(before["raw"]), contributions(after["raw"])
    paired = before["fingerprint"] == after["fingerprint"] and _places(before) == _places(after)
    for figure in one:
        if figure in other:
            low, high = _interval(one[figure], other[figure], seed, paired=paired)
            means = float(np.nanmean(one[figure])), float(np.nanmean(other[figure]))
            yield Difference(name, figure, *means, low, high, paired)


def _places(found: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: columns["place"] for kind, columns in found["raw"].items()}


def _interval(before: Values, after: Values, seed: int, *, paired: bool) -> tuple[float, float]:
    if paired:
        differences = after - before
        if np.isnan(differences).all():
            return 0.0, 0.0
        drawn = resampled(differences, seed)
    else:
        drawn = resampled(after, seed) - resampled(before, seed + 1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def table(differences: Sequence[Difference]) -> str:
    """Markdown; the last column says what is more than noise."""
    lines = ["| set | figure | before | after | difference | |", "|---|---|---|---|---|---|"]
    for one in differences:
        verdict = "WORSE" if one.worse else "better" if one.better else ""
        interval = f"{one.after - one.before:+.3f} ({one.low:+.3f} to {one.high:+.3f})"
        unpaired = "" if one.paired else ", other questions"
        lines.append(
            f"| {one.labelled} | {one.figure} | {one.before:.3f} | {one.after:.3f} | {interval}{unpaired} "
            f"| {verdict} |"
        )
    return "\n".join(lines)
