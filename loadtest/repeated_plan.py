"""Repeated questions: what is asked, how often again, and the documents that answer it."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.arrivals import Arrivals, schedule
from loadtest.client_manner import Manner
from loadtest.scenarios import Arrival

KNOWLEDGE_BASE = "handbook"

_THINGS = (
    "badge",
    "bicycle",
    "catering",
    "expense",
    "laptop",
    "parking",
    "phone",
    "printer",
    "travel",
    "visitor",
)
_OFFICES = (
    *("Lisbon", "Oslo", "Prague", "Dublin", "Vienna", "Geneva"),
    *("Madrid", "Athens", "Warsaw", "Zurich", "Bergen", "Krakow"),
)
#: none says a time that moves on: such questions are made anew each time
_FORMS = (
    "What is the limit for a {thing} request of the {office} office?",
    "Within how many hours is a {thing} request of the {office} office approved?",
    "How long does the desk keep the {thing} form of the {office} office?",
    "Who approves a {thing} request of the {office} office?",
)
#: of years that no document names
_NOBODY_KNOWS = "Who won the chess championship of {year}?"
_REUSES = Manner(reuses=True)

DOCUMENTS = {
    f"{thing}.md": f"# The {thing} policy\n\n"
    + "\n\n".join(
        f"## The {office} office\n\nA {thing} request of the {office} office is approved by the facilities "
        f"desk within {number + place} hours, and the limit for one {thing} request is "
        f"{100 * number + place} euros. The desk keeps the {thing} form of the {office} office for {place} "
        "years."
        for place, office in enumerate(_OFFICES, start=1)
    )
    for number, thing in enumerate(_THINGS, start=2)
}


@dataclass(frozen=True, slots=True)
class Mix:
    """``rate`` questions a second for ``seconds``. Of all, a share ``repeated`` has been asked before in this
    run, each of those as likely; of the others, a share ``unanswerable`` is about what no document says.
    """

    rate: float
    seconds: float
    seed: int
    repeated: float = 0.8
    unanswerable: float = 0.1


def plan(mix: Mix) -> list[Arrival]:
    """The same for the same mix; Poisson arrivals. Raises ValueError when there are too few questions."""
    chance = random.Random(mix.seed)
    answerable, unanswerable = _answerable(chance), map(_unanswerable, itertools.count(1801))
    asked: list[str] = []
    arrivals = []
    for at in schedule(Arrivals.POISSON, mix.rate, mix.seconds, mix.seed):
        if asked and chance.random() < mix.repeated:
            question = chance.choice(asked)
        else:
            source = unanswerable if chance.random() < mix.unanswerable else answerable
            try:
                question = next(source)
            except StopIteration as end:
                raise ValueError("there are too few questions for so long a run") from end
            asked.append(question)
        arrivals.append(Arrival(at, question, _REUSES))
    return arrivals


def _answerable(chance: random.Random) -> Iterator[str]:
    every = [
        form.format(thing=thing, office=office)
        for form, thing, office in itertools.product(_FORMS, _THINGS, _OFFICES)
    ]
    chance.shuffle(every)
    return iter(every)


def _unanswerable(year: int) -> str:
    return _NOBODY_KNOWS.format(year=year)
