"""Figures: what each question contributes to each of them, so that every mean has its noise.

recall@k and MRR as in Voorhees (TREC-8, 1999); nDCG@10 of one relevant passage is 1 / log2(1 + rank)
(Jaervelin and Kekaelaeinen, 2002). Intervals are percentile bootstraps over questions (Efron, 1979).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE

Values = NDArray[np.float64]
#: the columns of one kind of question, as they stand in the JSON
Columns = Mapping[str, Sequence[Any]]

#: figures that are better when they are small
LOWER_IS_BETTER = frozenset({"zero results", "false refusals", "false acceptances", "answers flagged"})
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean over ``n`` questions and its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


def contributions(raw: Mapping[str, Columns]) -> dict[str, Values]:
    """Figure -> one number a question (NaN: it says nothing); failed requests have none."""
    found: dict[str, Values] = {}
    if ANSWERABLE in raw:
        found |= _ranking(np.array(raw[ANSWERABLE]["rank"], dtype=np.float64))
        found["zero results"] = _where(np.array(raw[ANSWERABLE]["results"]) == 0)
        found["false refusals"] = _where(~answered(raw[ANSWERABLE]))
        found["answers with the gold string"] = _optional(raw[ANSWERABLE]["gold"])
        found["citations supported"] = _optional(raw[ANSWERABLE]["supported"])
        found["answers flagged"] = _where(flagged(raw[ANSWERABLE]))
    if OUTSIDE in raw:
        found["false acceptances"] = _where(answered(raw[OUTSIDE]))
    if NEAR in raw:
        found["near misses refused"] = _where(~answered(raw[NEAR]))
        found["near misses caught"] = _where(~answered(raw[NEAR]) | flagged(raw[NEAR]))
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def answered(columns: Columns) -> NDArray[np.bool_]:
    return np.array(columns["answered"], dtype=bool)


def flagged(columns: Columns) -> NDArray[np.bool_]:
    """Answered, and at least one citation says that it doesn't support its sentence."""
    supported = _optional(columns["supported"])
    return answered(columns) & (np.nan_to_num(supported, nan=1.0) < 1.0)


def _ranking(ranks: Values) -> dict[str, Values]:
    """Ranks count from 1; 0 is not found."""
    found = ranks > 0
    safe = np.where(found, ranks, np.inf)
    return {
        **{f"recall@{k}": _where(safe <= k) for k in (1, 5, 10)},
        "nDCG@10": np.where(safe <= 10, 1 / np.log2(1 + safe), 0.0),
        "MRR": 1 / safe,
    }


def _where(mask: NDArray[np.bool_]) -> Values:
    return mask.astype(np.float64)


def _optional(values: Sequence[float | bool | None]) -> Values:
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)


def figure(values: Values, seed: int) -> Figure:
    """The mean of what is there."""
    means = resampled(values, seed)
    low, high = np.nanquantile(means, [0.025, 0.975])
    present = int((~np.isnan(values)).sum())
    return Figure(round(float(np.nanmean(values)), 4), round(float(low), 4), round(float(high), 4), present)


def resampled(values: Values, seed: int) -> Values:
    """The means of RESAMPLES draws of as many questions, with repeats."""
    present = values[~np.isnan(values)]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(present), (RESAMPLES, len(present)))
    return np.asarray(present[drawn].mean(axis=1), dtype=np.float64)


def figures(raw: Mapping[str, Columns], seed: int) -> dict[str, Figure]:
    return {name: figure(values, seed) for name, values in contributions(raw).items()}


def only_held_out(raw: Mapping[str, Columns]) -> dict[str, Columns]:
    """The rows of articles that the bundled thresholds weren't fitted on."""
    kept: dict[str, Columns] = {}
    for kind, columns in raw.items():
        places = [place for place, held_out in enumerate(columns["held_out"]) if held_out]
        if places:
            kept[kind] = {name: [column[place] for place in places] for name, column in columns.items()}
    return kept


def curve(accept: Columns, reject: Columns, points: int = 60) -> list[tuple[float, float]]:
    """(share of ``accept`` refused, share of ``reject`` accepted) as the gate's threshold moves.

    By the gate's score alone; what is refused for another reason than its score is refused throughout.
    """
    wanted, unwanted = scores(accept), scores(reject)
    if not np.isfinite(wanted).any() or not np.isfinite(unwanted).any():
        return []
    thresholds = np.quantile(wanted[np.isfinite(wanted)], np.linspace(0, 1, points))
    found = [(float((wanted < t).mean()), float((unwanted >= t).mean())) for t in thresholds]
    return [(round(x, 4), round(y, 4)) for x, y in found]


def scores(columns: Columns) -> Values:
    """Of the gate; minus infinity where there is none."""
    return np.array([-np.inf if score is None else float(score) for score in columns["score"]])


def auc(accept: Columns, reject: Columns) -> float | None:
    """Chance that a question of the first outscores one of the second; ties count half."""
    wanted, unwanted = scores(accept), np.sort(scores(reject))
    if not np.isfinite(wanted).any():
        return None
    below = np.searchsorted(unwanted, wanted, side="left")
    upto = np.searchsorted(unwanted, wanted, side="right")
    return round(float(np.mean((below + upto) / 2) / len(unwanted)), 4)


def quantiles(milliseconds: Sequence[float]) -> dict[str, float] | None:
    """n, p50, p95 and p99 of times in ms; None when there are none."""
    if not milliseconds:
        return None
    p50, p95, p99 = np.quantile(milliseconds, [0.5, 0.95, 0.99])
    return {
        "n": len(milliseconds),
        "p50": round(float(p50), 1),
        "p95": round(float(p95), 1),
        "p99": round(float(p99), 1),
    }
