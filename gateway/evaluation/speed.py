"""Speed: how long searches take in a knowledge base of a given size, with several callers at once."""

import html
import random
from collections.abc import Iterator, Sequence
from typing import Any

from gateway.client import GatewayClient
from gateway.evaluation.asking import Asker, timed
from gateway.evaluation.figures import quantiles
from gateway.evaluation.filling import Document, fill
from gateway.evaluation.gateways import Target
from gateway.evaluation.labelled import ANSWERABLE, LabelledSet

KNOWLEDGE_BASE = "speed"
_SECTIONS = 100
_WORDS = 80
_WARM_UP = 20
_QUESTIONS = 400


def measured_speed(
    target: Target, sets: Sequence[LabelledSet], *, chunks: int, callers: int, seed: int
) -> dict[str, Any]:
    """Fills a knowledge base with ``chunks`` passages of the sets' words and searches it; ms as callers see
    them: HTTP, permissions, both routes, re-check, rerank and gate. Raises ApiError, EvaluationFailed.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    fill(target, KNOWLEDGE_BASE, list(_documents(sets, chunks, rng)))
    asked = [q.text for one in sets for _, q in one.of_kind(ANSWERABLE)]
    questions = rng.sample(asked, min(len(asked), _QUESTIONS + _WARM_UP))
    asker = Asker(target, callers)
    asker.each(_search, questions[:_WARM_UP])
    times = asker.each(_search, questions[_WARM_UP:])
    return {"chunks": chunks, "callers": callers, "ms": quantiles(times)}


def _search(gateway: GatewayClient, question: str) -> float:
    return timed(lambda: gateway.search(question, knowledge_base=KNOWLEDGE_BASE))[1]


def _documents(sets: Sequence[LabelledSet], chunks: int, rng: random.Random) -> Iterator[Document]:
    """Pages of many sections, each of which becomes one passage."""
    words = [word for one in sets for passage in one.passages for word in passage.text.split()]
    for first in range(0, chunks, _SECTIONS):
        count = min(_SECTIONS, chunks - first)
        sections = "".join(
            f"<h2>Section {first + n}</h2><p>{html.escape(' '.join(rng.sample(words, _WORDS)))}</p>"
            for n in range(count)
        )
        page = f"<html><head><title>Part {first}</title></head><body>{sections}</body></html>"
        yield Document(f"part-{first}.html", "text/html", page.encode())
