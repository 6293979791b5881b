"""The whole evaluation: every set put to a gateway, and everything that is reported of it."""

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gateway.client import GatewayClient
from gateway.evaluation.asking import COLUMNS, Asker, Outcome, columns, outcome_of
from gateway.evaluation.figures import auc, curve, figures, only_held_out, quantiles
from gateway.evaluation.filling import document_of, fill
from gateway.evaluation.gateways import Target
from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE, LabelledSet, Question
from gateway.evaluation.modes import compared_modes
from gateway.evaluation.skips import rerank_skips
from gateway.evaluation.speed import measured_speed
from gateway.evaluation.surroundings import surroundings

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """How much is asked: at most ``sample`` questions a kind and set, by ``callers`` at once; with
    ``speed_chunks`` the time of searches in a knowledge base of that size as well.
    """

    seed: int = 7
    sample: int | None = None
    callers: int = 4
    mode_questions: int = 200
    speed_chunks: int = 0


#: told what is going on
Notes = Callable[[str], None]


def evaluated(
    target: Target, sets: Sequence[LabelledSet], choice: Choice, notes: Notes, knowledge_base: str = ""
) -> dict[str, Any]:
    """Every figure of every set, as it goes into the JSON. A running gateway is asked and never filled;
    ``knowledge_base`` names what it is asked about. Raises ApiError, EvaluationFailed, ServerUnreachable.
    """
    began = time.monotonic()
    around = surroundings(choice.seed)
    found = {one.name: _of_set(target, one, choice, notes, knowledge_base) for one in sets}
    return {
        "format": FORMAT,
        "command": command_of(target, choice),
        **around,
        "gateway": target.kind,
        "callers": choice.callers,
        "sample": choice.sample,
        "seconds": round(time.monotonic() - began, 1),
        "space": next((one["space"] for one in found.values()), ""),
        "sets": found,
        "speed": _speed(target, sets, choice, notes),
    }


def command_of(target: Target, choice: Choice) -> str:
    """What makes these figures again; folders and addresses are the reader's own."""
    where: dict[str, list[str]] = {
        "temporary": [],
        "offline": ["--offline"],
        "running": ["--url", "URL", "--kb", "NAME"],
    }
    parts = ["qa-gateway eval --data DATA", *where[target.kind], f"--seed {choice.seed}"]
    if choice.sample is not None:
        parts.append(f"--sample {choice.sample}")
    if choice.speed_chunks:
        parts.append(f"--speed-chunks {choice.speed_chunks}")
    return " ".join([*parts, f"--callers {choice.callers}"])


def _of_set(
    target: Target, labelled: LabelledSet, choice: Choice, notes: Notes, knowledge_base: str
) -> dict[str, Any]:
    asker = Asker(target, choice.callers)
    half_of, held_out = labelled.half_of(), labelled.held_out()
    whole, halves = knowledge_base, ("", "")
    if target.kind != "running":
        whole, halves = _filled(target, labelled, half_of, notes)

    def ask(kind: str) -> list[Outcome]:
        asked = sampled(labelled, kind, choice)
        notes(f"{labelled.name}: {len(asked)} questions, {kind}")

        def one(gateway: GatewayClient, placed: tuple[int, Question]) -> Outcome:
            place, question = placed
            other = halves[1 - half_of[question.passage]]
            asked_of = other if kind == OUTSIDE else whole
            return outcome_of(gateway, asked_of, place, question, held_out=held_out[question.passage])

        return asker.each(one, asked)

    kinds = (ANSWERABLE, NEAR) if target.kind == "running" else (ANSWERABLE, NEAR, OUTSIDE)
    skipped_before = _skips(target)
    outcomes = {kind: asked for kind in kinds if (asked := ask(kind))}
    skipped = _skips(target) - skipped_before
    notes(f"{labelled.name}: modes")
    questions = sampled(labelled, ANSWERABLE, choice)[: choice.mode_questions]
    return {
        "fingerprint": labelled.fingerprint,
        "passages": len(labelled.passages),
        "questions": {kind: len(asked) for kind, asked in outcomes.items()},
        **summary({kind: columns(asked) for kind, asked in outcomes.items()}, choice.seed),
        "reasons": {kind: _reasons(asked) for kind, asked in outcomes.items()},
        "errors": dict(Counter(o.error for asked in outcomes.values() for o in asked if o.error)),
        "searches ranked by": _labels([o for asked in outcomes.values() for o in asked]),
        "reranks skipped": dict(skipped),
        "ms": _times([o for asked in outcomes.values() for o in asked if not o.error]),
        "modes": compared_modes(asker, whole, [question.text for _, question in questions]),
        "space": _space(target, whole),
    }


def _speed(
    target: Target, sets: Sequence[LabelledSet], choice: Choice, notes: Notes
) -> dict[str, Any] | None:
    if not choice.speed_chunks or target.kind == "running":
        return None
    notes(f"{choice.speed_chunks} passages, searched by {choice.callers} at once")
    return measured_speed(target, sets, chunks=choice.speed_chunks, callers=choice.callers, seed=choice.seed)


def summary(raw: Mapping[str, Mapping[str, Sequence[Any]]], seed: int) -> dict[str, Any]:
    """What follows from the columns alone; ``raw`` itself stands in it."""
    found: dict[str, Any] = {
        "figures": {name: asdict(figure) for name, figure in figures(raw, seed).items()},
        "held_out": {name: asdict(figure) for name, figure in figures(only_held_out(raw), seed).items()},
        "curves": {},
        "auc": {},
    }
    for kind in (OUTSIDE, NEAR):
        if kind in raw and ANSWERABLE in raw:
            found["curves"][kind] = curve(raw[ANSWERABLE], raw[kind])
            found["auc"][kind] = auc(raw[ANSWERABLE], raw[kind])
    return {**found, "raw": {kind: {name: raw[kind][name] for name in COLUMNS} for kind in raw}}


def sampled(labelled: LabelledSet, kind: str, choice: Choice) -> list[tuple[int, Question]]:
    """A seeded choice of (place in the set, question), in the order of the file."""
    asked = labelled.of_kind(kind)
    if choice.sample is None or choice.sample >= len(asked):
        return asked
    chosen = random.Random(choice.seed).sample(asked, choice.sample)  # noqa: S311 - no secret
    return sorted(chosen, key=lambda one: one[0])


def _filled(
    target: Target, labelled: LabelledSet, half_of: Mapping[str, int], notes: Notes
) -> tuple[str, tuple[str, str]]:
    """The names of the knowledge bases with all passages, and with either half of the articles."""
    whole, halves = labelled.name, (f"{labelled.name}-half-0", f"{labelled.name}-half-1")
    for name, half in ((whole, None), (halves[0], 0), (halves[1], 1)):
        passages = [p for p in labelled.passages if half is None or half_of[p.id] == half]
        notes(f"{labelled.name}: {len(passages)} passages into {name}")
        fill(target, name, [document_of(passage) for passage in passages])
    return whole, halves


def _space(target: Target, knowledge_base: str) -> str:
    """What the answers say that they were embedded with."""
    with target.client() as gateway:
        for event in gateway.ask("?", knowledge_base=knowledge_base):
            if event.name == "meta":
                return str(event.data["embedding_space_id"])
    return ""


def _skips(target: Target) -> Counter[str]:
    """Nothing of a running gateway: others ask it as well, and each of its processes counts its own."""
    return Counter() if target.kind == "running" else rerank_skips(target)


def _labels(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return dict(sorted(Counter(o.ranked_by for o in outcomes if o.ranked_by).items()))


def _reasons(outcomes: Sequence[Outcome]) -> dict[str, int]:
    return dict(sorted(Counter(reason for outcome in outcomes for reason in outcome.reasons).items()))


def _times(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    answered = [outcome for outcome in outcomes if outcome.answered]
    return {
        "search": quantiles([outcome.search_ms for outcome in outcomes]),
        "retrieval": quantiles([outcome.retrieval_ms for outcome in outcomes]),
        "first text": quantiles([o.first_text_ms for o in answered if o.first_text_ms is not None]),
        "answer": quantiles([outcome.total_ms for outcome in answered]),
        "refusal": quantiles([outcome.total_ms for outcome in outcomes if not outcome.answered]),
    }
