"""Speed: how long searches take in a knowledge base of a given size, with several callers at once."""

import random
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from gateway.client import ApiError, GatewayClient
from gateway.evaluation.asking import Asker, answer_of, timed
from gateway.evaluation.figures import quantiles
from gateway.evaluation.filling import fill
from gateway.evaluation.gateways import FILLING, EvaluationFailed, Target
from gateway.evaluation.labelled import ANSWERABLE, LabelledSet
from gateway.evaluation.recombined import recombined

KNOWLEDGE_BASE = "speed"
_WARM_UP = 20
_QUESTIONS = 400
#: what ``done.timings.retrieval_ms`` sums up too
_RETRIEVAL = ("embed_ms", "retrieve_ms", "recheck_ms")

A = TypeVar("A")


def measured_speed(
    target: Target, sets: Sequence[LabelledSet], *, chunks: int, callers: int, seed: int
) -> dict[str, Any]:
    """Fills a knowledge base with ``chunks`` passages of the sets' sentences, searches it and asks it; ms.

    ``search``: as callers see it, with HTTP, permissions, rerank and gate. ``retrieval``: of the same
    searches what their traces say of steps 9 to 11, embedding, term statistics, all routes, fusion and
    re-check, with every wait for a place; ``answers' retrieval``: of answers, the same and the neighbours.
    Raises ApiError, EvaluationFailed when it then holds another number of passages.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    fill(target, KNOWLEDGE_BASE, list(recombined(sets, chunks, rng)))
    _expect(target, chunks)
    asked = [q.text for one in sets for _, q in one.of_kind(ANSWERABLE)]
    questions = rng.sample(asked, min(len(asked), _QUESTIONS + _WARM_UP))
    warm_up, questions = questions[:_WARM_UP], questions[_WARM_UP:] or questions
    asker = Asker(target, callers)
    asker.each(_search, warm_up)
    searches, per_s = _timed(lambda: asker.each(_search, questions))
    asker.each(_answer, warm_up)
    answers, answers_per_s = _timed(lambda: asker.each(_answer, questions))
    stages = [ms for trace in asker.each(_retrieval, [trace for _, trace in searches]) for ms in trace]
    return {
        "chunks": chunks,
        "callers": callers,
        "ms": {
            "search": quantiles([ms for ms, _ in searches]),
            "retrieval": quantiles(stages),
            "answers' retrieval": quantiles([ms for found in answers for ms in found]),
        },
        "per s": {"search": per_s, "answers": answers_per_s},
    }


def _expect(target: Target, chunks: int) -> None:
    with target.client(FILLING) as gateway:
        newest = gateway.releases(KNOWLEDGE_BASE)[0]
    if newest["chunks"] != chunks:
        raise EvaluationFailed(f"the release holds {newest['chunks']} passages in place of {chunks}")


def _timed(call: Callable[[], Sequence[A]]) -> tuple[Sequence[A], float]:
    """What it gives, and how many of them a second."""
    began = time.perf_counter()
    found = call()
    return found, round(len(found) / (time.perf_counter() - began), 1)


def _search(gateway: GatewayClient, question: str) -> tuple[float, str]:
    """Its time and its trace."""
    found, ms = timed(lambda: gateway.search(question, knowledge_base=KNOWLEDGE_BASE))
    return ms, str(found["trace_id"])


def _retrieval(gateway: GatewayClient, trace_id: str) -> list[float]:
    """Nothing of a search whose trace wasn't kept."""
    try:
        found = gateway.explain(trace_id)["timings"]
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return []
    return [sum(found.get(stage, 0.0) for stage in _RETRIEVAL)]


def _answer(gateway: GatewayClient, question: str) -> list[float]:
    """Nothing of an answer that failed."""
    _, done = answer_of(gateway, KNOWLEDGE_BASE, question)
    return [float(done["timings"]["retrieval_ms"])] if "timings" in done else []
