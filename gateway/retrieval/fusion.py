"""Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)."""

from collections.abc import Mapping, Sequence


def reciprocal_rank_fusion(
    rankings: Mapping[str, Sequence[str]], weights: Mapping[str, float], k: int = 60
) -> list[tuple[str, float]]:
    """Fuses rankings of ids, best first: score(d) = sum over routes of weight / (k + rank).

    Ranks count from 1 and only an id's first place in a route counts. Scores of unlike routes are
    never added. Ties are broken by id, so the order is the same on every run.
    """
    scores: dict[str, float] = {}
    for route, ranking in rankings.items():
        for rank, item in enumerate(dict.fromkeys(ranking), start=1):
            scores[item] = scores.get(item, 0.0) + weights.get(route, 1.0) / (k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))
