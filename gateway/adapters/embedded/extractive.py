"""Answers without a language model: the evidence's own sentences, picked and cited."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.doubt import Doubts, Verdict
from gateway.adapters.embedded.quotable import Fits, Quotable, fits, quotables
from gateway.answer.budget import estimate_tokens
from gateway.answer.conflict import Statement
from gateway.answer.evidence import Evidence
from gateway.answer.model import ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import NO_SUPPORT_MARKER, Prompt
from gateway.answer.support.sentences import Piece, PieceKind
from gateway.context import Deadline
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.terms import terms_of

SENTENCES = 3
#: a later piece's worth may be this far below the best one's
_WORTH = 1.4
#: share of terms two pieces may have in common before they say the same
_SAME = 0.7
#: share of the best piece's similarity + coverage from which another source may contradict it
_RIVAL = 0.75


@dataclass(frozen=True, slots=True)
class _Answer:
    """The pieces to say, none for no answer, and whether they are one. The first ``together`` contradict each
    other: whatever the budget, none of them is said alone.
    """

    chosen: tuple[Quotable, ...]
    sure: bool = True
    together: int = 1

    @property
    def sentences(self) -> tuple[list[str], int]:
        """What to say, and how much of it in any case."""
        together = len(list(_sentences(self.chosen[: self.together])))
        return list(_sentences(self.chosen)), together


class ExtractiveModel:
    """Up to three pieces by their worth (see ``quotable``), each with its marker.

    A row names its columns, a code block comes whole after the sentence that introduces it, a list item
    after its lead-in. The pieces go to ``embedder`` and nowhere else, so it is cleared for what that is.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def name(self) -> str:
        return "extractive"

    @property
    def max_sensitivity(self) -> int:
        return self._embedder.max_sensitivity

    @asynccontextmanager
    async def stream(self, prompt: Prompt, deadline: Deadline) -> AsyncIterator[AsyncIterator[ModelPiece]]:
        """Picks before it enters; raises EmbedderUnavailable or DeadlineExceeded."""
        answer = await self._answer(prompt, deadline)
        async with aclosing(_speak(prompt, *answer.sentences, answer.sure)) as spoken:
            yield spoken

    async def _answer(self, prompt: Prompt, deadline: Deadline) -> _Answer:
        # Reading and counting six passages takes longer than the event loop may be kept.
        options = await to_thread.run_sync(quotables, prompt.question, prompt.evidence)
        if not options:
            return _Answer(())
        texts = [prompt.question, *(option.piece.text for option in options)]
        vectors = np.array(await self._embedder.embed(texts, deadline), dtype=np.float32)
        found = await to_thread.run_sync(fits, prompt.question, options, vectors)
        return _answer(prompt.question, found, options, prompt.max_output_tokens)


def doubts_about(
    question: str, evidence: Sequence[Evidence], vectors: Callable[[Sequence[str]], NDArray[np.float32]]
) -> Doubts | None:
    """What speaks against the answer that these passages would get, for whoever fits the weights; blocks.
    None without a sentence. ``vectors`` gives one unit row a text.
    """
    options = quotables(question, evidence)
    if not options:
        return None
    found = fits(question, options, vectors([question, *(option.piece.text for option in options)]))
    return _doubts(question, found, options)


def _doubts(question: str, found: Fits, options: Sequence[Quotable]) -> Doubts:
    return Doubts.of(question, options[found.best].quoted, float(found.fit[found.best]))


def _answer(question: str, found: Fits, options: Sequence[Quotable], tokens: int) -> _Answer:
    """Nothing where the best piece is about something else than what is asked."""
    verdict = _doubts(question, found, options).verdict
    if verdict is Verdict.NO_ANSWER:
        return _Answer(())
    chosen, sure = _pick(found.worth, options, tokens), verdict is Verdict.ANSWER
    best = options[found.best]
    rivals = _rivals(question, found.fit, options, best)
    if not rivals:
        return _Answer(tuple(chosen), sure)
    first = (best, *rivals)
    others = [option for option in chosen if option not in first]
    return _Answer((*first, *others)[: max(SENTENCES, len(first))], sure, len(first))


def _rivals(
    question: str, fit: NDArray[np.float64], options: Sequence[Quotable], best: Quotable
) -> list[Quotable]:
    """The best piece of each other document, where it states another amount or date of the same thing."""
    least, asked = _RIVAL * fit[best.place], frozenset(terms_of(question))
    firsts: dict[str, Quotable] = {}
    for option in sorted(options, key=lambda one: -fit[one.place]):
        firsts.setdefault(option.document, option)
    said = Statement.of(best.piece.text)
    return [
        option
        for document, option in firsts.items()
        if document != best.document
        and fit[option.place] >= least
        and said.contradicts(Statement.of(option.piece.text), asked)
    ]


def _pick(worth: NDArray[np.float64], options: Sequence[Quotable], tokens: int) -> list[Quotable]:
    """The best pieces without near duplicates, the first in any case; of one passage in the passage's order,
    so that what has no room is left out here, the worst first.
    """
    order = [int(i) for i in np.argsort(-worth, kind="stable")]
    least = worth[order[0]] - _WORTH
    chosen: list[Quotable] = []
    for i in order:
        if len(chosen) == SENTENCES or not worth[i] >= least:
            break
        if not any(_same(options[i], one) for one in chosen):
            more = [*chosen, options[i]]
            if chosen and sum(map(estimate_tokens, _sentences(_by_passage(more)))) > tokens:
                break
            chosen = more
    return _by_passage(chosen)


def _by_passage(chosen: Sequence[Quotable]) -> list[Quotable]:
    first = {option.n: position for position, option in reversed(list(enumerate(chosen)))}
    return sorted(chosen, key=lambda option: (first[option.n], option.place))


def _same(one: Quotable, other: Quotable) -> bool:
    """Rows of one table differ in their cells only, so they count as the same when they are equal."""
    if one.piece.kind is PieceKind.ROW and other.piece.kind is PieceKind.ROW:
        return one.piece.text == other.piece.text
    smaller = min(len(one.terms), len(other.terms))
    return len(one.terms & other.terms) / smaller > _SAME


def _sentences(chosen: Sequence[Quotable]) -> Iterator[str]:
    """One piece of the answer at a time; a lead-in is said once."""
    said = {option.piece.text for option in chosen if option.piece.kind is PieceKind.SENTENCE}
    before = ""
    for option in chosen:
        piece, marker = option.piece, f"[{option.n}]"
        if piece.lead and piece.lead not in said:
            said.add(piece.lead)
            yield _joint(before, PieceKind.SENTENCE) + f"{piece.lead} {marker}"
            before = PieceKind.SENTENCE
        yield _joint(before, piece.kind) + _said(piece, marker)
        before = piece.kind


def _said(piece: Piece, marker: str) -> str:
    match piece.kind:
        case PieceKind.CODE:
            return f"{piece.text}\n{marker}"
        case PieceKind.ITEM | PieceKind.ROW:
            return f"- {piece.text} {marker}"
        case _:
            return f"{piece.text} {marker}"


def _joint(before: str, kind: PieceKind) -> str:
    """What stands between two pieces: sentences flow, everything else begins a block."""
    if not before:
        return ""
    if before == PieceKind.SENTENCE and kind is PieceKind.SENTENCE:
        return " "
    listed = (PieceKind.ITEM, PieceKind.ROW)
    return "\n" if before in listed and kind in listed else "\n\n"


async def _speak(
    prompt: Prompt, sentences: Sequence[str], at_least: int, sure: bool
) -> AsyncGenerator[ModelPiece, None]:
    """Whole sentences up to the output budget, the first ones in any case."""
    spent = 0
    for place, sentence in enumerate(sentences or [NO_SUPPORT_MARKER]):
        cost = estimate_tokens(sentence)
        if place >= at_least and spent + cost > prompt.max_output_tokens:
            break
        spent += cost
        yield TextPiece(sentence)
    sent = estimate_tokens(prompt.question) + sum(estimate_tokens(e.text) for e in prompt.evidence)
    yield ModelUsage(sent, spent, estimated=True)
    yield ModelFinish("stop", sure)
