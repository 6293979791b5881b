"""The facade's modes side by side: whether they serve, and how much of their first passages they share."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from gateway.client import ApiError, GatewayClient
from gateway.evaluation.asking import Asker, patiently

MODES = ("auto", "sdk", "vectorstore")
TOP = 10


def compared_modes(asker: Asker, knowledge_base: str, questions: Sequence[str]) -> dict[str, Any]:
    """``served_by``: mode -> which path, or which error, how often. ``overlap``: of two modes the mean share
    of common passages among the first TOP, and of questions with the very same order.
    """

    def found_by(mode: str) -> list[tuple[str, list[str]]]:
        def ask(gateway: GatewayClient, question: str) -> tuple[str, list[str]]:
            return _found(gateway, knowledge_base, question, mode)

        return asker.each(ask, questions)

    found = {mode: found_by(mode) for mode in MODES}
    return {
        "questions": len(questions),
        "served_by": {mode: dict(Counter(path for path, _ in each)) for mode, each in found.items()},
        "overlap": {
            f"{one} / {other}": overlap([ids for _, ids in found[one]], [ids for _, ids in found[other]])
            for one, other in combinations(MODES, 2)
            if _served(found[one]) and _served(found[other])
        },
    }


def _found(gateway: GatewayClient, knowledge_base: str, question: str, mode: str) -> tuple[str, list[str]]:
    """Which path served and the first passages; the error's code and none where it doesn't serve."""
    try:
        found = patiently(
            lambda: gateway.search(question, knowledge_base=knowledge_base, top_k=TOP, mode=mode)
        )
    except ApiError as error:
        return error.problem_code, []
    return str(found["served_by"]), [str(result["chunk_id"]) for result in found["results"]]


def _served(found: Sequence[tuple[str, list[str]]]) -> bool:
    return any(ids for _, ids in found)


def overlap(one: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> dict[str, float]:
    """Over questions that either of the two finds anything for."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a or b]
    shares = [len(set(a) & set(b)) / max(len(a), len(b)) for a, b in pairs]
    same = [list(a) == list(b) for a, b in pairs]
    return {
        "common": round(sum(shares) / len(pairs), 4) if pairs else 0.0,
        "same order": round(sum(same) / len(pairs), 4) if pairs else 0.0,
    }
