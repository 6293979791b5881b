"""Arrival times of an open loop: fixed before the run begins, so that no answer can hold up a question."""

import random
from enum import StrEnum


class Arrivals(StrEnum):
    CONSTANT = "constant"
    POISSON = "poisson"


def schedule(kind: Arrivals, rate: float, seconds: float, seed: int) -> list[float]:
    """Seconds from the start of the run, ascending, all below ``seconds``; ``rate`` a second.

    Poisson: exponential gaps (Knuth, TAOCP 2, 3.4.1), the same for the same seed.
    """
    if rate <= 0:
        raise ValueError("a rate is above 0")
    if kind is Arrivals.CONSTANT:
        return [number / rate for number in range(round(rate * seconds))]
    gaps = random.Random(seed)
    times: list[float] = []
    at = gaps.expovariate(rate)
    while at < seconds:
        times.append(at)
        at += gaps.expovariate(rate)
    return times
