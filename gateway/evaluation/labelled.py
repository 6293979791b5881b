"""Labelled sets: passages, questions about them, and which article each one belongs to."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.errors import GatewayError

#: the ways a set's questions are asked: answered by an indexed passage, of its topic but without an answer
#: there, and with its article left out of the index
ANSWERABLE, NEAR, OUTSIDE = "answerable", "near", "outside"


class LabelledDataUnusable(GatewayError):
    """A folder or file of labelled questions that isn't of the documented form."""

    code = "labelled_data_unusable"
    title = "The labelled data can't be used"


@dataclass(frozen=True, slots=True)
class Passage:
    """``title`` may be empty; passages of one title are one article, one without is an article of its own."""

    id: str
    title: str
    text: str

    @property
    def article(self) -> str:
        return self.title or self.id


@dataclass(frozen=True, slots=True)
class Question:
    """``answers`` are gold strings, one of which a right answer contains; there may be none."""

    text: str
    passage: str
    answerable: bool
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """One file. ``fingerprint`` is the same for the same questions in the same order."""

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]
    fingerprint: str

    def of_kind(self, kind: str) -> list[tuple[int, Question]]:
        """The questions that are asked this way, with their places; every one can be asked as OUTSIDE."""
        placed = enumerate(self.questions)
        if kind == OUTSIDE:
            return list(placed)
        return [(place, q) for place, q in placed if q.answerable == (kind == ANSWERABLE)]

    def half_of(self) -> dict[str, int]:
        """Passage id -> 0 or 1: every other article, in order of their names, as they are indexed apart."""
        return {passage: place % 2 for passage, place in self._places().items()}

    def held_out(self) -> dict[str, bool]:
        """Passage id -> whether its article is one that the bundled thresholds weren't fitted on."""
        return {passage: place // 2 % 2 == 1 for passage, place in self._places().items()}

    def _places(self) -> dict[str, int]:
        places = {article: i for i, article in enumerate(sorted({p.article for p in self.passages}))}
        return {p.id: places[p.article] for p in self.passages}


def read_sets(folder: Path) -> list[LabelledSet]:
    """Every ``*.json`` of the folder, in order of their names. Raises LabelledDataUnusable."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise LabelledDataUnusable(f"there is no *.json in {folder}")
    return [read_set(path) for path in files]


def read_set(path: Path) -> LabelledSet:
    """One file of passages and questions. Raises LabelledDataUnusable."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        passages = tuple(_passage(entry) for entry in raw["passages"])
        questions = tuple(_question(entry) for entry in raw["questions"])
    except OSError as error:
        raise LabelledDataUnusable(f"{path} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabelledDataUnusable(f"{path} is not of the documented form: {error!r}") from error
    known = {passage.id for passage in passages}
    if len(known) != len(passages):
        raise LabelledDataUnusable(f"{path} has two passages of one id")
    strangers = [q.passage for q in questions if q.passage not in known]
    if strangers or not questions:
        raise LabelledDataUnusable(f"{path} asks about passages that it doesn't have: {strangers[:3]}")
    return LabelledSet(path.stem, passages, questions, _fingerprint(questions))


def _passage(entry: Any) -> Passage:
    return Passage(str(entry["id"]), str(entry.get("title") or ""), str(entry["text"]))


def _question(entry: Any) -> Question:
    answers = tuple(str(answer) for answer in entry.get("answers") or ())
    return Question(str(entry["question"]), str(entry["passage"]), bool(entry["answerable"]), answers)


def _fingerprint(questions: Sequence[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        digest.update(f"{question.text}\0{question.passage}\0{question.answerable}\0".encode())
    return digest.hexdigest()[:16]
