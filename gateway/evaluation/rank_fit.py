"""Fits the linear reranker to labelled sets, and says how well it ranks articles that it hasn't seen.

``python -m eval.ranking --data FOLDER [--json OUT] [--write FILE]``. Answerable questions only, every passage
of a set indexed, by the embedder that GATEWAY_EMBEDDER names. What is written is fitted on half of the
articles, those that the gate is fitted on too; the figures are of the other half, and of a cross-validation
in which each article is ranked by weights that were fitted without it.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gateway.adapters.embedded.features import FEATURES, features
from gateway.adapters.embedded.reading import Reader
from gateway.adapters.embedded.rerank import CLOSE, TextEmbedder
from gateway.adapters.embedded.weights import weights_from
from gateway.errors import ConfigurationError
from gateway.evaluation.choice import Choice, Floats, fit
from gateway.evaluation.index import Index, Vectors, embed_questions
from gateway.evaluation.labelled import LabelledSet, read_sets
from gateway.evaluation.models import models_in_force
from gateway.retrieval.terms import TERMS_VERSION, terms_of
from gateway.settings import Settings

FOLDS = 8
VERSION = "linear-1"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question's choice, and where its passage stands without a reranker."""

    set_name: str
    article: int
    held_out: bool
    choice: Choice
    bm25_rank: float
    fused_rank: float


def ask(labelled: LabelledSet, embedder: Vectors, reader: TextEmbedder) -> list[Asked]:
    """Every answerable question with the candidates of both routes. ``reader`` reads words and sentences."""
    index = Index(labelled.passages, embedder, Settings())
    apart = Reader(reader.vectors)
    places = {passage.id: place for place, passage in enumerate(labelled.passages)}
    articles = {name: i for i, name in enumerate(sorted({p.article for p in labelled.passages}))}
    readings = apart.read((f"{p.title}\n", p.text) for p in labelled.passages)
    held_out = labelled.held_out()
    questions = [question for question in labelled.questions if question.answerable]
    asked = []
    vectors = embed_questions(embedder, (question.text for question in questions))
    for question, vector in zip(questions, vectors, strict=True):
        right = places[question.passage]
        similarities = index.similarities(vector)
        routes = index.routes(terms_of(question.text), similarities)
        found = routes.fused[:CLOSE]
        rows = features(
            question.text,
            [readings[i] for i in found],
            [float(similarities[i]) for i in found],
            index.statistics,
            apart,
            reader.vectors,
        )
        asked.append(
            Asked(
                labelled.name,
                articles[labelled.passages[right].article],
                held_out[question.passage],
                Choice(rows, found.index(right) if right in found else None),
                _rank(routes.bm25, right),
                _rank(routes.fused, right),
            )
        )
    return asked


def _rank(found: Sequence[int], right: int) -> float:
    return found.index(right) + 1.0 if right in found else float("inf")


def weights_of(asked: Sequence[Asked]) -> Floats:
    """Each set counts the same, however many questions it has."""
    sizes = Counter(one.set_name for one in asked)
    return fit([replace(one.choice, weight=1000 / sizes[one.set_name]) for one in asked])


def cross_validated(asked: Sequence[Asked], seed: int) -> list[float]:
    """The rank of each question's passage under weights fitted without its fold of articles."""
    folds = {name: _folds({o.article for o in asked if o.set_name == name}, seed) for name in _names(asked)}
    fold_of = [folds[one.set_name][one.article] for one in asked]
    weights = {
        fold: weights_of([one for one, other in zip(asked, fold_of, strict=True) if other != fold])
        for fold in sorted(set(fold_of))
    }
    return [one.choice.rank(weights[fold]) for one, fold in zip(asked, fold_of, strict=True)]


def _folds(articles: set[int], seed: int) -> dict[int, int]:
    shuffled = np.random.default_rng(seed).permutation(sorted(articles))
    return {int(article): place % FOLDS for place, article in enumerate(shuffled)}


def _names(asked: Sequence[Asked]) -> list[str]:
    return sorted({one.set_name for one in asked})


def figures(asked: Sequence[Asked], ranks: Sequence[float]) -> dict[str, dict[str, float]]:
    """By set: recall@1, @5 and MRR over the candidates."""
    found = {}
    for name in _names(asked):
        mine = np.array([rank for one, rank in zip(asked, ranks, strict=True) if one.set_name == name])
        found[name] = {
            "questions": len(mine),
            "recall@1": round(float(np.mean(mine <= 1)), 4),
            "recall@5": round(float(np.mean(mine <= 5)), 4),
            "mrr": round(float(np.mean(1 / mine)), 4),
        }
    return found


def report(folder: Path, embedder: Vectors, reader: TextEmbedder, seed: int = 7) -> dict[str, Any]:
    """Everything that is printed. Raises LabelledDataUnusable."""
    asked = [one for labelled in read_sets(folder) for one in ask(labelled, embedder, reader)]
    weights = weights_of([one for one in asked if not one.held_out])
    held_out = [one for one in asked if one.held_out]
    return {
        "version": VERSION,
        "space_id": embedder.space.space_id,
        "weights": dict(zip(FEATURES, (round(float(w), 2) for w in weights), strict=True)),
        "fit": {"terms": TERMS_VERSION, "seed": seed, "questions": len(asked) - len(held_out)},
        "bm25": figures(asked, [one.bm25_rank for one in asked]),
        "fused": figures(asked, [one.fused_rank for one in asked]),
        "cross_validated": figures(asked, cross_validated(asked, seed)),
        "held_out_bm25": figures(held_out, [one.bm25_rank for one in held_out]),
        "held_out": figures(held_out, [one.choice.rank(weights) for one in held_out]),
    }


def write(path: Path, made: dict[str, Any]) -> None:
    """The weights file, whole or not at all. Raises ConfigurationError for a fit that nothing would load."""
    text = json.dumps({name: made[name] for name in ("version", "space_id", "weights", "fit")}, indent=2)
    weights_from(text)
    part = path.with_name(path.name + ".part")
    part.write_text(text + "\n", "utf-8")
    part.replace(path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with labelled sets")
    parser.add_argument("--seed", type=int, default=7, help="of the folds")
    parser.add_argument("--json", type=Path, help="also write the report here")
    parser.add_argument("--write", type=Path, help="write the weights file here")
    options = parser.parse_args(arguments)
    with models_in_force(Settings()) as models:
        if models.reader is None:
            raise ConfigurationError("embedders_named_twice", "GATEWAY_EMBEDDING_BASE_URL is set")
        made = report(options.data, models.embedder, models.reader, options.seed)
    text = json.dumps(made, indent=2, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.write:
        write(options.write, made)
