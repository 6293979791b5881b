"""Conditional logit (McFadden 1974): weights under which the right one of several candidates stands out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 50


@dataclass(frozen=True, slots=True)
class Choice:
    """One question: a row of features a candidate, and the place of the right one, None where it isn't there.

    ``weight`` is what the question counts in a fit.
    """

    rows: Floats
    right: int | None
    weight: float = 1.0

    def rank(self, weights: Floats) -> float:
        """The right one's place, from 1, ties against it; infinite where it isn't there."""
        if self.right is None:
            return float("inf")
        scores = self.rows @ weights
        return float(np.sum(scores >= scores[self.right]))


def fit(choices: Sequence[Choice], ridge: float = 1.0) -> Floats:
    """One weight a column, by Newton's method with halved steps; the loss is convex, so there is one answer.

    ``ridge`` punishes weights of columns scaled to a deviation of 1.
    """
    asked = [choice for choice in choices if choice.right is not None]
    rows = np.concatenate([choice.rows for choice in asked])
    scale = rows.std(axis=0) + 1e-9
    loss = _Loss(asked, rows / scale, ridge)
    beta = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        step = loss.step(beta)
        size = 1.0
        while loss.of(beta - size * step) > loss.of(beta) and size > 1e-6:
            size /= 2
        beta -= size * step
        if np.abs(step).max() < 1e-6:
            break
    weights: Floats = beta / scale
    return weights


class _Loss:
    """The weighted negative log-likelihood of the right ones, over all questions at once."""

    def __init__(self, asked: Sequence[Choice], rows: Floats, ridge: float) -> None:
        sizes = [len(choice.rows) for choice in asked]
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._of_row = np.repeat(np.arange(len(asked)), sizes)
        self._rows = rows
        self._right = rows[[start + (c.right or 0) for start, c in zip(self._starts, asked, strict=True)]]
        self._weights = np.array([choice.weight for choice in asked])
        self._ridge = ridge

    def of(self, beta: Floats) -> float:
        _, log_total = self._chances(beta)
        return float(self._weights @ (log_total - self._right @ beta) + self._ridge / 2 * beta @ beta)

    def step(self, beta: Floats) -> Floats:
        chances, _ = self._chances(beta)
        weighed = self._rows * chances[:, None]
        means = np.add.reduceat(weighed, self._starts)
        gradient = self._weights @ (means - self._right) + self._ridge * beta
        spread = (weighed * self._weights[self._of_row][:, None]).T @ self._rows
        hessian = spread - (means * self._weights[:, None]).T @ means
        step: Floats = np.linalg.solve(hessian + self._ridge * np.eye(len(beta)), gradient)
        return step

    def _chances(self, beta: Floats) -> tuple[Floats, Floats]:
        """A candidate's chance within its question, and the log of each question's sum."""
        scores = self._rows @ beta
        top = np.maximum.reduceat(scores, self._starts)
        powers = np.exp(scores - top[self._of_row])
        totals = np.add.reduceat(powers, self._starts)
        return powers / totals[self._of_row], np.log(totals) + top
