"""Scenarios of load: the file that all three load tools read, and the arrivals that it means."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.arrivals import Arrivals, schedule
from loadtest.client_manner import How, Leaving, Manner, Phase
from loadtest.overhead_text import tokens

FILE = Path(__file__).with_name("scenarios.json")

#: how long after asking somebody may leave who doesn't wait for the headers
_HASTE_S = 0.02
_PHASES = (Phase.BEFORE_HEADERS, Phase.AFTER_META, Phase.MID_STREAM)


@dataclass(frozen=True, slots=True)
class Answer:
    """How the scripted model answers, where the run brings one: so many words, so far apart."""

    words: int
    first_word_ms: float
    word_ms: float

    def script(self) -> dict[str, Any]:
        return {
            "tokens": tokens(self.words),
            "first_token_ms": self.first_word_ms,
            "cadence_ms": self.word_ms,
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """``rate`` questions a second for ``seconds``. ``unanswerable``, ``leaving``, ``slow`` and
    ``acknowledging`` are shares of the clients.
    """

    name: str
    about: str
    arrivals: Arrivals
    rate: float
    seconds: float
    seed: int
    unanswerable: float
    leaving: float
    slow: float
    acknowledging: float
    answer: Answer


@dataclass(frozen=True, slots=True)
class Questions:
    knowledge_base: str
    answerable: Sequence[str]
    unanswerable: Sequence[str]
    slow_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """One client: when, with what, and how it behaves."""

    at: float
    question: str
    manner: Manner


def questions(path: Path = FILE) -> Questions:
    found = json.loads(path.read_text())
    return Questions(
        found["knowledge_base"], found["answerable"], found["unanswerable"], found["slow_bytes_per_s"]
    )


def scenario(name: str, path: Path = FILE, **changes: Any) -> Scenario:
    """By name; ``changes`` replace what the file says. Raises KeyError for a name that isn't there."""
    given: Mapping[str, Any] = json.loads(path.read_text())["scenarios"][name] | changes
    return Scenario(
        name=name,
        **{
            **given,
            "arrivals": Arrivals(given["arrivals"]),
            "answer": Answer(**given["answer"]),
        },
    )


def names(path: Path = FILE) -> list[str]:
    return list(json.loads(path.read_text())["scenarios"])


def plan(chosen: Scenario, asked: Questions) -> list[Arrival]:
    """Every client of a run, the same for the same scenario and seed."""
    chance = random.Random(chosen.seed)
    return [
        Arrival(at, _question(chosen, asked, chance), _manner(chosen, asked, chance))
        for at in schedule(chosen.arrivals, chosen.rate, chosen.seconds, chosen.seed)
    ]


def _question(chosen: Scenario, asked: Questions, chance: random.Random) -> str:
    return chance.choice(asked.unanswerable if chance.random() < chosen.unanswerable else asked.answerable)


def _manner(chosen: Scenario, asked: Questions, chance: random.Random) -> Manner:
    """Leaving, reading slowly and acknowledging are drawn one after the other; who leaves does neither."""
    if chance.random() < chosen.leaving:
        return Manner(leaving=_leaving(chosen, chance))
    slow = chance.random() < chosen.slow
    acknowledges = chance.random() < chosen.acknowledging
    return Manner(bytes_per_s=asked.slow_bytes_per_s if slow else None, acknowledges=acknowledges)


def _leaving(chosen: Scenario, chance: random.Random) -> Leaving:
    return Leaving(
        phase=chance.choice(_PHASES),
        how=chance.choice((How.FIN, How.RST)),
        after_s=chance.uniform(0, _HASTE_S),
        after_deltas=chance.randint(1, max(1, chosen.answer.words // 2)),
    )
