"""Capacity: what so many questions a second ask of each part, by Little's law and the tokens of a minute.

Pure arithmetic: means in, means out. It knows nothing of a running gateway.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

#: shortages below it drown in the rounding of 1 - shortage
LEAST_SHORTAGE = 1e-9
#: above this mean a Poisson distribution is told by the normal one, within a place
_MANY = 400.0
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class Shares:
    """Where questions go before a model is asked. Each is a share of what the one before has left, so that no
    question is in two of them: ``lost`` of all, turned away, failed or gone before anything could be shown;
    ``hits`` of the others, told a kept answer or a kept refusal; ``shared`` of the others, told what another
    question was having made; ``refused`` of the others, for want of evidence and without a model.
    """

    lost: float = 0.0
    hits: float = 0.0
    shared: float = 0.0
    refused: float = 0.0

    @property
    def shown(self) -> float:
        return 1 - self.lost

    @property
    def made(self) -> float:
        """Of all questions: those that are searched for."""
        return self.shown * (1 - self.hits) * (1 - self.shared)

    @property
    def started(self) -> float:
        """Of all questions: those that start a generation."""
        return self.made * (1 - self.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``arrivals`` in questions a second; times in seconds, each the mean of one; tokens of one generation.

    ``answer_s`` is from a question to the end of its answer, whoever made it; None: as its stages have it,
    with kept answers at once and shared ones as long as their own making.
    """

    arrivals: float
    shares: Shares = Shares()
    embedding_s: float = 0.0
    retrieval_s: float = 0.0
    rerank_s: float = 0.0
    generation_s: float = 0.0
    answer_s: float | None = None
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    @property
    def starts(self) -> float:
        """Generations a second."""
        return self.arrivals * self.shares.started

    @property
    def tokens(self) -> float:
        return self.input_tokens + self.output_tokens

    @property
    def tokens_per_minute(self) -> float:
        return self.starts * self.tokens * _MINUTE_S

    @property
    def held_s(self) -> float:
        """How long a question that is shown something holds its session."""
        if self.answer_s is not None:
            return self.answer_s
        search_s = self.embedding_s + self.retrieval_s + self.rerank_s
        return (1 - self.shares.hits) * (search_s + (1 - self.shares.refused) * self.generation_s)


@dataclass(frozen=True, slots=True)
class Part:
    """Something there is only so much of. ``each`` is what one question a second uses of it in the mean;
    ``size`` what there is in each of ``pools`` equal and separate ones, None for no limit. ``grain`` is how
    much one user takes of it at a time.
    """

    name: str
    unit: str
    each: float
    size: float | None
    pools: int = 1
    grain: float = 1.0

    def used(self, arrivals: float) -> float:
        """The mean of all pools together."""
        return arrivals * self.each

    def needed(self, arrivals: float, shortage: float) -> float:
        """What each pool must have so that more is wanted in at most a share ``shortage`` of all moments.
        Room for one at least, where anything is used.
        """
        used = self.used(arrivals) / self.pools
        return self.grain * max(1, most_at_once(used / self.grain, shortage)) if used else 0.0

    @property
    def saturates_at(self) -> float | None:
        """Arrivals a second at which the mean use is all there is; None: at none."""
        if self.size is None or not self.each:
            return None
        return self.size * self.pools / self.each

    def serves(self, shortage: float) -> float | None:
        """Arrivals a second up to which ``needed`` is there."""
        if self.size is None or self.saturates_at is None:
            return None
        below, above = 0.0, self.saturates_at
        for _ in range(40):  # halving: far finer than anybody reads it
            middle = (below + above) / 2
            if self.needed(middle, shortage) <= self.size:
                below = middle
            else:
                above = middle
        return below


def places(name: str, visits: float, seconds: float, size: float | None, pools: int) -> Part:
    """Of a bulkhead: L = lambda W, the mean number inside is the rate of arrivals times the mean stay.

    ``visits`` for each question. J. D. C. Little, "A proof for the queuing formula L = lambda W", Operations
    Research 9 (1961).
    """
    return Part(name, "places", visits * seconds, size, pools)


def tokens_a_minute(
    name: str, load: Load, limit: float | None, *, reserved: float, share: float = 1.0
) -> Part:
    """Of a quota that books ``reserved`` tokens for each running call, of which Little's law says how many
    there are, and for every other call of the last minute what it has used.

    Mean m and variance v are those of two Poisson numbers of calls with their tokens; a Poisson number of
    grains of v / m tokens has both.
    """
    running = load.shares.started * load.generation_s
    ended = max(0.0, load.shares.started * _MINUTE_S - running)
    booked = max(reserved, load.tokens)
    mean = ended * load.tokens + running * booked
    variance = ended * load.tokens**2 + running * booked**2
    return Part(name, "tokens/min", share * mean, limit, grain=variance / mean if mean else 0.0)


def calls_a_minute(name: str, load: Load, limit: float | None, share: float = 1.0) -> Part:
    return Part(name, "calls/min", share * load.shares.started * _MINUTE_S, limit)


def bottleneck(parts: Sequence[Part], shortage: float) -> Part | None:
    """The part that serves least; None where nothing has a limit. It needn't be the one that is used up
    first: a single place is too few long before it is always taken.
    """
    limited = [(serves, part) for part in parts if (serves := part.serves(shortage)) is not None]
    return min(limited, key=lambda one: one[0])[1] if limited else None


def most_at_once(mean: float, shortage: float) -> int:
    """The smallest number that a Poisson number of this mean exceeds with probability ``shortage`` at most.

    The number inside is Poisson where arrivals are and nobody has to wait, however long each stays (M/G/∞:
    L. Takács, Introduction to the Theory of Queues, 1962, chapter 3). Large means by the expansion of
    E. A. Cornish and R. A. Fisher (1938). Raises ValueError for a shortage below LEAST_SHORTAGE, or of 1 and
    more.
    """
    if not LEAST_SHORTAGE <= shortage < 1:
        raise ValueError(f"a shortage is at least {LEAST_SHORTAGE:g} and below 1")
    if mean <= 0:
        return 0
    if mean > _MANY:
        z = NormalDist().inv_cdf(1 - shortage)
        return math.ceil(mean + z * math.sqrt(mean) + (z * z - 1) / 6)
    number, probability = 0, math.exp(-mean)
    within = probability
    while within < 1 - shortage:
        number += 1
        probability *= mean / number
        within += probability
    return number
