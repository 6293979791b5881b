"""Answers without a language model: the evidence's own sentences, picked and cited."""

import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.doubt import Doubts, Verdict
from gateway.answer.budget import estimate_tokens
from gateway.answer.conflict import Statement
from gateway.answer.evidence import Evidence
from gateway.answer.model import ModelFinish, ModelPiece, ModelUsage, TextPiece
from gateway.answer.prompt import NO_SUPPORT_MARKER, Prompt, language_of
from gateway.answer.support.sentences import Piece, PieceKind, pieces
from gateway.context import Deadline
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import stem, terms_of

SENTENCES = 3
_WORD = re.compile(r"[a-z]+")
#: what the first passage is worth over the last, beside a similarity and a coverage of at most 1
_RANK_PRIOR = 0.25
#: closer than this in score, a passage in the question's language goes first
_LANGUAGE_BONUS = 0.15
#: a block of code is long and full of words that are names only; who asks for the way wants it
_CODE_ASKED, _CODE_UNASKED = 0.15, -0.2
_ASKS_FOR_CODE = re.compile(
    r"\bhow (?:do|can|could|should|would|to)\b|\b(?:command|code|example|snippet|run|syntax|config\w*)\b"
    r"|怎么|如何|怎样|命令|代码|示例|配置",
    re.IGNORECASE,
)
#: share of the coverage that counts when the headings above a piece help to reach it
_HEADING_SHARE = 0.5
#: a later piece must reach this share of the best one's similarity + coverage
_WORTH = 0.5
#: share of terms two pieces may have in common before they say the same
_SAME = 0.7
#: share of the best piece's similarity + coverage from which another source may contradict it
_RIVAL = 0.75


@dataclass(frozen=True, slots=True)
class _Option:
    """One quotable piece with its passage. ``place`` orders pieces as the evidence has them;
    ``headings`` are the terms of the piece and of the title, section and heading above it.
    """

    n: int
    place: int
    piece: Piece
    terms: frozenset[str]
    headings: frozenset[str]
    prior: float
    above: str = ""
    document: str = ""

    @property
    def quoted(self) -> str:
        """The piece with everything that is written above it."""
        return "\n".join((self.above, self.piece.heading, self.piece.lead, self.piece.text))


@dataclass(frozen=True, slots=True)
class _Answer:
    """The pieces to say, none for no answer, and whether they are one. The first ``together`` contradict each
    other: whatever the budget, none of them is said alone.
    """

    chosen: tuple[_Option, ...]
    sure: bool = True
    together: int = 1

    @property
    def sentences(self) -> tuple[list[str], int]:
        """What to say, and how much of it in any case."""
        together = len(list(_sentences(self.chosen[: self.together]))) if self.together > 1 else 1
        return list(_sentences(self.chosen)), together


class ExtractiveModel:
    """Up to three pieces by similarity + IDF overlap + rank of their passage, each with its marker.

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
        options = await to_thread.run_sync(_options, prompt.question, prompt.evidence)
        if not options:
            return _Answer(())
        texts = [prompt.question, *(option.piece.text for option in options)]
        vectors = np.array(await self._embedder.embed(texts, deadline), dtype=np.float32)
        fit = await to_thread.run_sync(_fit, prompt.question, options, vectors)
        return _answer(prompt.question, fit, options)


def doubts_about(
    question: str, evidence: Sequence[Evidence], vectors: Callable[[Sequence[str]], NDArray[np.float32]]
) -> Doubts | None:
    """What speaks against the answer that these passages would get, for whoever fits the weights; blocks.
    None without a sentence. ``vectors`` gives one unit row a text.
    """
    options = _options(question, evidence)
    if not options:
        return None
    fit = _fit(question, options, vectors([question, *(option.piece.text for option in options)]))
    return _doubts(question, fit, options, _best(fit, options))


def _best(fit: NDArray[np.float64], options: Sequence[_Option]) -> int:
    return int(np.argmax(fit + np.array([option.prior for option in options])))


def _doubts(question: str, fit: NDArray[np.float64], options: Sequence[_Option], best: int) -> Doubts:
    return Doubts.of(question, options[best].quoted, float(fit[best]))


def _answer(question: str, fit: NDArray[np.float64], options: Sequence[_Option]) -> _Answer:
    """Nothing where the best piece is about something else than what is asked."""
    best = _best(fit, options)
    verdict = _doubts(question, fit, options, best).verdict
    if verdict is Verdict.NO_ANSWER:
        return _Answer(())
    chosen, sure = _pick(fit, options), verdict is Verdict.ANSWER
    rivals = _rivals(question, fit, options, options[best])
    if not rivals:
        return _Answer(tuple(chosen), sure)
    first = (options[best], *rivals)
    others = [option for option in chosen if option not in first]
    return _Answer((*first, *others)[: max(SENTENCES, len(first))], sure, len(first))


def _rivals(
    question: str, fit: NDArray[np.float64], options: Sequence[_Option], best: _Option
) -> list[_Option]:
    """The best piece of each other document, where it states another amount or date of the same thing."""
    least, asked = _RIVAL * fit[best.place], frozenset(terms_of(question))
    firsts: dict[str, _Option] = {}
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


def _options(question: str, evidence: Sequence[Evidence]) -> list[_Option]:
    language = language_of(question)
    code = _CODE_ASKED if _ASKS_FOR_CODE.search(question) else _CODE_UNASKED
    options: list[_Option] = []
    for rank, item in enumerate(evidence):
        chunk = item.chunk
        prior = _RANK_PRIOR * (1 - rank / len(evidence))
        prior += _LANGUAGE_BONUS * (language_of(chunk.content) == language)
        titles = f"{chunk.title}\n{chunk.section}"
        headings = frozenset(terms_of(titles))
        for piece in chain.from_iterable(pieces(part.content) for part in item.parts):
            terms = frozenset(terms_of(f"{piece.lead} {piece.text}"))
            if terms and not piece.text.endswith(("?", "？", ":", "：")):
                worth = prior + code * (piece.kind is PieceKind.CODE)
                above = headings.union(terms_of(piece.heading))
                options.append(
                    _Option(
                        item.n, len(options), piece, terms, terms | above, worth, titles, chunk.document_id
                    )
                )
    return options


def _fit(question: str, options: Sequence[_Option], vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    """Similarity + coverage of each piece. IDF is counted over the pieces at hand: what all of them
    say tells nothing, and neither does a term that none of them has.
    """
    frequencies = Counter(term for option in options for term in option.headings)
    statistics = TermStatistics(len(options), frequencies)
    asked = (*terms_of(question), *_joined(question))
    wanted = tuple(term for term in asked if frequencies[term])
    own = np.array([statistics.coverage(wanted, [option.terms]) for option in options])
    headed = np.array([statistics.coverage(wanted, [option.headings]) for option in options])
    coverage = (1 - _HEADING_SHARE) * own + _HEADING_SHARE * headed
    return np.asarray(vectors[1:] @ vectors[0] + coverage, dtype=np.float64)


def _joined(question: str) -> Iterator[str]:
    """``roll back`` is written ``rollback`` as well, ``log in`` ``login``."""
    for first, second in pairwise(_WORD.findall(question.lower())):
        yield stem(first + second)


def _pick(fit: NDArray[np.float64], options: Sequence[_Option]) -> list[_Option]:
    """The best pieces without near duplicates; of one passage in the passage's order."""
    scores = fit + np.array([option.prior for option in options])
    order = [int(i) for i in np.argsort(-scores, kind="stable")]
    chosen: list[_Option] = []
    for i in order:
        worthy = not chosen or fit[i] >= _WORTH * fit[order[0]]
        if len(chosen) < SENTENCES and worthy and not any(_same(options[i], one) for one in chosen):
            chosen.append(options[i])
    first = {option.n: position for position, option in reversed(list(enumerate(chosen)))}
    return sorted(chosen, key=lambda option: (first[option.n], option.place))


def _same(one: _Option, other: _Option) -> bool:
    """Rows of one table differ in their cells only, so they count as the same when they are equal."""
    if one.piece.kind is PieceKind.ROW and other.piece.kind is PieceKind.ROW:
        return one.piece.text == other.piece.text
    smaller = min(len(one.terms), len(other.terms))
    return len(one.terms & other.terms) / smaller > _SAME


def _sentences(chosen: Sequence[_Option]) -> Iterator[str]:
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
