"""Asking: one question through the whole pipeline, and what of the answer is kept for the figures."""

import re
import string
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gateway.client import ApiError, GatewayClient, ServerUnreachable, StreamEvent
from gateway.errors import DeadlineExceeded, GatewayError, Rejection, Unavailable
from gateway.evaluation.filling import source_of
from gateway.evaluation.gateways import Target
from gateway.evaluation.labelled import Question

A = TypeVar("A")
B = TypeVar("B")

#: how many passages are looked through for the right one
DEPTH = 50
_TRIES = 4
_PAUSE_S = 0.5
_PASSING = frozenset({429, 503, 504})


def _codes(kind: type[GatewayError]) -> frozenset[str]:
    return frozenset({kind.code}).union(*map(_codes, kind.__subclasses__()))


#: the same, as the end of a stream that had begun says it
_PASSING_CODES = frozenset().union(*map(_codes, (Rejection, Unavailable, DeadlineExceeded)))
_MARKER = re.compile(r"\[\d+\]")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question at one knowledge base.

    ``place``: of the question in its set. ``rank``: of the first right passage, 0 when it isn't among DEPTH.
    ``score``: the gate's own number, None when it isn't told or something else than the number refuses.
    ``supported``: share of the citations that support their sentence, None without citations. ``gold``:
    whether the answer has a gold string, None when there is none. ``ranked_by``: the label of the search's
    numbers, '' without results. Times in ms: of the search as its caller sees it, and what ``done.timings``
    says.
    """

    place: int
    rank: int
    results: int
    score: float | None
    answered: bool
    reasons: tuple[str, ...]
    supported: float | None
    gold: bool | None
    held_out: bool
    search_ms: float
    retrieval_ms: float
    first_text_ms: float | None
    total_ms: float
    ranked_by: str = ""
    error: str = ""


_NOTHING = Outcome(0, 0, 0, None, False, (), None, None, False, 0.0, 0.0, None, 0.0)
#: what goes into the JSON of every question
COLUMNS = ("place", "rank", "results", "score", "answered", "supported", "gold", "held_out")


def columns(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    """Column -> a value a question; questions whose request failed are left out."""
    kept = [outcome for outcome in outcomes if not outcome.error]
    return {name: [_plain(getattr(outcome, name)) for outcome in kept] for name in COLUMNS}


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return round(value, 3) if isinstance(value, float) else value


class Asker:
    """Asks one gateway with a fixed number of callers at once, each waiting for its answer."""

    def __init__(self, target: Target, callers: int) -> None:
        self._target = target
        self._callers = callers

    def each(self, ask: Callable[[GatewayClient, A], B], items: Iterable[A]) -> list[B]:
        """``ask`` of every item, in their order."""
        with self._target.client() as gateway, ThreadPoolExecutor(self._callers) as pool:
            return list(pool.map(lambda item: ask(gateway, item), items))


def outcome_of(
    gateway: GatewayClient, knowledge_base: str, place: int, question: Question, *, held_out: bool = False
) -> Outcome:
    """Searches and asks; an error of the gateway is an outcome with its code, no refusal."""
    try:
        found, search_ms = timed(
            lambda: gateway.search(question.text, knowledge_base=knowledge_base, top_k=DEPTH)
        )
        text, done = answer_of(gateway, knowledge_base, question.text)
    except ApiError as error:
        return replace(_NOTHING, place=place, held_out=held_out, error=error.problem_code)
    if "status" not in done:
        return replace(_NOTHING, place=place, held_out=held_out, error=str(done.get("code")))
    answered = done["status"] == "ANSWERED"
    timings = done["timings"]
    return Outcome(
        place=place,
        rank=rank_of(found["results"], {source_of(question.passage)}),
        results=len(found["results"]),
        score=score_of(found),
        answered=answered,
        reasons=tuple(done["reasons"]),
        supported=_supported(done) if answered else None,
        gold=None if not question.answers else answered and contains(text, question.answers),
        held_out=held_out,
        search_ms=search_ms,
        retrieval_ms=timings["retrieval_ms"],
        first_text_ms=timings["ttft_ms"],
        total_ms=timings["total_ms"],
        ranked_by=next((str(result["score_label"]) for result in found["results"]), ""),
    )


def rank_of(results: Sequence[Mapping[str, Any]], right: Iterable[str]) -> int:
    """Of the first passage whose document is right, counted by documents, from 1; 0 when there is none."""
    wanted = frozenset(right)
    documents = dict.fromkeys(str(result["uri"]) for result in results)
    return next((rank for rank, uri in enumerate(documents, start=1) if uri in wanted), 0)


def score_of(found: Mapping[str, Any]) -> float | None:
    """The gate's number; None when it isn't told, or when something else than the number refuses."""
    gate = found.get("gate") or {}
    others = set(gate.get("reasons", ())) - {"BELOW_THRESHOLD"}
    score = gate.get("score")
    return None if score is None or others else float(score)


def _supported(done: Mapping[str, Any]) -> float | None:
    citations = done["citations"]
    return sum(bool(c["supported"]) for c in citations) / len(citations) if citations else None


def answer_of(gateway: GatewayClient, knowledge_base: str, question: str) -> tuple[str, Mapping[str, Any]]:
    """The text, and the data of the last event."""
    events = patiently(
        lambda: list(gateway.ask(question, knowledge_base=knowledge_base, fresh=True)), _cut_off
    )
    return _text(events), events[-1].data


def _cut_off(events: Sequence[StreamEvent]) -> bool:
    """Whether it ended for want of something that may be there again in a moment."""
    return events[-1].name == "error" and events[-1].data.get("code") in _PASSING_CODES


def _text(events: Sequence[StreamEvent]) -> str:
    return "".join(str(event.data["text"]) for event in events if event.name == "delta")


def timed(call: Callable[[], A]) -> tuple[A, float]:
    """What it gives, and how many ms the attempt that gave it took."""
    began = time.perf_counter()

    def attempt() -> A:
        nonlocal began
        began = time.perf_counter()
        return call()

    found = patiently(attempt)
    return found, round((time.perf_counter() - began) * 1000, 2)


def patiently(call: Callable[[], A], vain: Callable[[A], bool] = lambda _: False) -> A:
    """Asks again where the gateway is too busy just now, or has just closed an idle connection.

    ``vain``: whether what came is no more than that. Raises ApiError, ServerUnreachable.
    """
    for _ in range(_TRIES - 1):
        try:
            found = call()
            if not vain(found):
                return found
        except ApiError as error:
            if error.status not in _PASSING:
                raise
        except ServerUnreachable:
            pass
        time.sleep(_PAUSE_S)
    return call()


def contains(text: str, answers: Iterable[str]) -> bool:
    """Whether an answer holds a gold string, both without case, punctuation, articles and markers."""
    said = f" {normal(text)} "
    squeezed = said.replace(" ", "")
    for answer in answers:
        wanted = normal(answer)
        if wanted and (
            f" {wanted} " in said or (not wanted.isascii() and wanted.replace(" ", "") in squeezed)
        ):
            return True
    return False


def normal(text: str) -> str:
    """As SQuAD's own evaluation compares strings (Rajpurkar et al., 2016)."""
    bare = "".join(
        " " if c in _PUNCTUATION or unicodedata.category(c).startswith("P") else c
        for c in _MARKER.sub(" ", text).lower()
    )
    return " ".join(_ARTICLES.sub(" ", bare).split())
