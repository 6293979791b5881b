"""Rows: what the gate sees of each labelled question, in every order that its evidence may come in.

Negatives are out of corpus: half of the articles is indexed and asked about the other half, then the
reverse. The articles of every half are split once more, so that the gate is fitted on questions about
other articles than it is tested on.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.answer.evidence import GateSignals
from gateway.answer.signals import ReadPassage, Wanted
from gateway.evaluation.index import Index, Vectors, embed_questions
from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE, LabelledSet, Passage, Question
from gateway.retrieval.asking import telling_terms
from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.script import script_of
from gateway.retrieval.terms import terms_of
from gateway.settings import Settings


class Order(Protocol):
    """A reranker over the passages of one set."""

    @property
    def version(self) -> str: ...

    def ranked(
        self,
        question: str,
        found: Sequence[Passage],
        similarities: Sequence[float],
        statistics: TermStatistics,
    ) -> Sequence[tuple[Passage, float | None]]:
        """The same passages, the best first, each with its number if a gate may weigh it."""
        ...


@dataclass(frozen=True)
class Row:
    """One question put to one index. ``kind`` is one of labelled's; the order is ``signals.reranker``;
    ``article`` is the one that the question is about.
    """

    language: str
    kind: str
    training: bool
    signals: GateSignals
    question: Question
    evidence: tuple[Passage, ...]
    article: str


class GateIndex(Index):
    """An Index whose passages the gate has read."""

    def __init__(self, passages: Sequence[Passage], embedder: Vectors, settings: Settings) -> None:
        super().__init__(passages, embedder, settings)
        self._read = [ReadPassage.reading(p.title, p.text) for p in passages]

    def signals(
        self, question: str, found: "Ordered", evidence: Sequence[int], similarities: NDArray[np.float32]
    ) -> GateSignals:
        """As a request computes them; ``evidence`` are the first places of what was ``found``."""
        passages = [self._read[place] for place in evidence]
        wanted = Wanted.of(telling_terms(question), self.statistics)
        return GateSignals(
            candidates=len(evidence),
            expired=0,
            top_similarity=max((float(similarities[place]) for place in evidence), default=None),
            coverage=wanted.coverage(passages),
            missing_key_terms=len(missing_key_terms(question, [p.terms for p in passages])),
            reranker=found.reranker,
            sentence_coverage=wanted.sentence_coverage(passages),
            match=wanted.match(passages),
            rerank_score=found.best,
            script=script_of(question),
        )


@dataclass(frozen=True, slots=True)
class Ordered:
    """Places of all candidates. ``reranker`` is the version that put them in order and ``best`` the number of
    the first; '' and None in the fused order.
    """

    places: list[int]
    reranker: str = ""
    best: float | None = None


def ranking(labelled: LabelledSet, embedder: Vectors, settings: Settings) -> dict[str, dict[str, float]]:
    """recall@5 and MRR (over a route's hits) of each route on answerable questions, all indexed."""
    index = Index(labelled.passages, embedder, settings)
    asked = [question for _, question in labelled.of_kind(ANSWERABLE)]
    ranks: dict[str, list[float]] = defaultdict(list)
    for question, vector in zip(asked, embed_questions(embedder, (q.text for q in asked)), strict=True):
        routes = index.routes(terms_of(question.text), index.similarities(vector))
        for route, found in (("bm25", routes.bm25), ("dense", routes.dense), ("rrf", routes.fused)):
            ids = [passage.id for passage in index.passages(found)]
            ranks[route].append(ids.index(question.passage) + 1.0 if question.passage in ids else np.inf)
    return {
        route: {
            "recall@5": round(float(np.mean(np.array(r) <= 5)), 4),
            "mrr": round(float(np.mean(1 / np.array(r))), 4),
        }
        for route, r in ranks.items()
    }


def out_of_corpus(
    labelled: LabelledSet, embedder: Vectors, settings: Settings, order: Order | None = None
) -> list[Row]:
    """Every question against both halves, the one with its article and the one without; where there is a
    reranker, in its order as well.
    """
    half_of, held_out = labelled.half_of(), labelled.held_out()
    article_of = {passage.id: passage.article for passage in labelled.passages}
    vectors = embed_questions(embedder, (question.text for question in labelled.questions))
    rows = []
    for half in (0, 1):
        inside = [passage for passage in labelled.passages if half_of[passage.id] == half]
        index = GateIndex(inside, embedder, settings)
        for question, vector in zip(labelled.questions, vectors, strict=True):
            answers = ANSWERABLE if question.answerable else NEAR
            kind = answers if half_of[question.passage] == half else OUTSIDE
            training = not held_out[question.passage]
            for found in _orders(index, question.text, vector, order):
                evidence = found.places[: settings.evidence_passages]
                signals = index.signals(question.text, found, evidence, index.similarities(vector))
                passages = tuple(index.passages(evidence))
                article = article_of[question.passage]
                rows.append(Row(labelled.name, kind, training, signals, question, passages, article))
    return rows


def _orders(
    index: Index, question: str, vector: NDArray[np.float32], order: Order | None
) -> Iterable[Ordered]:
    """The fused order, and the reranker's."""
    similarities = index.similarities(vector)
    fused = index.routes(terms_of(question), similarities).fused
    yield Ordered(fused)
    if order is not None and fused:
        place_of = {passage.id: place for passage, place in zip(index.passages(fused), fused, strict=True)}
        near = [float(similarities[place]) for place in fused]
        ranked = order.ranked(question, index.passages(fused), near, index.statistics)
        yield Ordered([place_of[passage.id] for passage, _ in ranked], order.version, ranked[0][1])
