"""Fits the extractive model's doubt ("right topic, answer missing"); says what gate and doubt do together.

``python -m eval.doubt --data FOLDER [--json OUT]``. The sets, their halves and the articles that are held
out are those of ``python -m eval.gate``; evidence comes in the bundled reranker's order, and the gate is the
one in use. Weights and thresholds are fitted on the sets that have questions without an answer; the figures
are of the articles that are held out. What is printed goes into adapters/embedded/doubt.py by hand. Nothing
in here is random.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.doubt import DOUBTFUL_BELOW, NO_ANSWER_BELOW, WEIGHTS, Doubts
from gateway.adapters.embedded.embedder import CALIBRATION, BundledEmbedder
from gateway.adapters.embedded.extractive import doubts_about
from gateway.adapters.embedded.weights import bundled_weights
from gateway.answer.evidence import Evidence, decide
from gateway.evaluation.gate_fit import fit
from gateway.evaluation.gate_rows import Row, out_of_corpus
from gateway.evaluation.index import Vectors
from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE, Passage, read_sets
from gateway.evaluation.linear_order import LinearOrder
from gateway.retrieval.chunk import FOREVER, Chunk, row_id
from gateway.settings import Settings

Floats = NDArray[np.float64]

#: shares of answerable training questions below the two thresholds
NO_ANSWER_SHARE, DOUBTFUL_SHARE = 0.01, 0.09
#: rare signs of doubt are worth less than half of the articles say
_SHRINK = 3.0
_CURVE = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Weights in the order of Doubts' fields, and its two thresholds."""

    weights: tuple[float, ...]
    no_answer_below: float
    doubtful_below: float


@dataclass(frozen=True, slots=True)
class Asked:
    """One question: whether the gate lets it pass, and what speaks against its answer."""

    set_name: str
    kind: str
    training: bool
    passed: bool
    doubts: tuple[float, ...]


IN_USE = Weighed(WEIGHTS, NO_ANSWER_BELOW, DOUBTFUL_BELOW)


class KeptVectors:
    """Each text is embedded once: passages come back in many questions."""

    def __init__(self, embedder: Vectors) -> None:
        self._embedder = embedder
        self._kept: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if new:
            self._kept.update(zip(new, self._embedder.vectors(new), strict=True))
        return np.stack([self._kept[text] for text in texts])


def ask(folder: Path, embedder: BundledEmbedder) -> list[Asked]:
    """Raises LabelledDataUnusable."""
    asked = []
    for labelled in read_sets(folder):
        order, vectors = LinearOrder(embedder, bundled_weights()), KeptVectors(embedder)
        for row in out_of_corpus(labelled, embedder, Settings(), order):
            if row.signals.reranker == order.version:
                asked.append(_asked(row, vectors))
    return asked


def _asked(row: Row, vectors: KeptVectors) -> Asked:
    evidence = [_evidence(n, passage) for n, passage in enumerate(row.evidence, start=1)]
    doubts = doubts_about(row.question.text, evidence, vectors) or Doubts(0.0, 1.0, 1.0, 1.0, 1.0)
    passed = decide(CALIBRATION, row.signals).sufficient
    return Asked(row.language, row.kind, row.training, passed, astuple(doubts))


def _evidence(n: int, passage: Passage) -> Evidence:
    chunk = Chunk(
        row_id=row_id("labelled", passage.id),
        chunk_id=passage.id,
        tenant_id="labelled",
        kb_id="labelled",
        kb_revision="labelled",
        embedding_space_id="labelled",
        document_id=passage.article,
        document_version=1,
        chunk_index=0,
        acl_class=0,
        category="",
        valid_from=0,
        valid_until=FOREVER,
        sensitivity=0,
        revocation_epoch=0,
        title=passage.article,
        section="",
        page=0,
        source_uri="",
        parser_version="labelled",
        splitter_version="labelled",
        content_hash=passage.id,
        author="",
        approval="unreviewed",
        risk=(),
        content=passage.text,
    )
    return Evidence(n, chunk, None, 0.0, "rerank", "")


def weighed(asked: Sequence[Asked]) -> Weighed:
    """Scaled so that ``fit`` weighs 1; one decimal, for there is no more in the data."""
    sets = {one.set_name for one in asked if one.kind == NEAR}
    used = [one for one in asked if one.training and one.kind != OUTSIDE and one.set_name in sets]
    labels = np.array([float(one.kind == ANSWERABLE) for one in used])
    values = np.array([one.doubts for one in used])
    found = fit(values, labels, np.ones(len(used)), _SHRINK)[:-1]
    weights = tuple(round(float(weight / found[0]), 1) for weight in found)
    right = (values @ np.array(weights))[labels == 1]
    low, high = np.quantile(right, (NO_ANSWER_SHARE, DOUBTFUL_SHARE))
    return Weighed(weights, round(float(low), 2), round(float(high), 2))


def figures(asked: Sequence[Asked], by: Weighed) -> dict[str, dict[str, dict[str, float]]]:
    """By set and kind: shares of the questions that are refused, and answered with a flag."""
    groups: dict[str, dict[str, list[Asked]]] = defaultdict(lambda: defaultdict(list))
    for one in asked:
        groups[one.set_name][one.kind].append(one)
    return {name: {kind: _shares(mine, by) for kind, mine in kinds.items()} for name, kinds in groups.items()}


def _shares(asked: Sequence[Asked], by: Weighed) -> dict[str, float]:
    passed = np.array([one.passed for one in asked])
    scores = _scores(asked, by)
    refused = ~passed | (scores < by.no_answer_below)
    flagged = ~refused & (scores < by.doubtful_below)
    return {"refused": round(float(refused.mean()), 3), "flagged": round(float(flagged.mean()), 3)}


def _scores(asked: Sequence[Asked], by: Weighed) -> Floats:
    return np.asarray(np.array([one.doubts for one in asked]) @ np.array(by.weights))


def curve(asked: Sequence[Asked], by: Weighed) -> list[dict[str, float]]:
    """Gate and doubt over the second threshold, which is set to each of these shares of the training
    questions: what is refused or flagged of answerable questions, and of those without an answer.
    """
    sets = {one.set_name for one in asked if one.kind == NEAR}
    mine = [one for one in asked if one.set_name in sets]
    right = [one for one in mine if one.kind == ANSWERABLE]
    trained = _scores([one for one in right if one.training], by)
    groups = {
        ANSWERABLE: [one for one in right if not one.training],
        NEAR: [one for one in mine if one.kind == NEAR and not one.training],
    }
    points = []
    for share in _CURVE:
        threshold = float(np.quantile(trained, share))
        at = {kind: _caught(group, by, threshold) for kind, group in groups.items()}
        points.append({"threshold": round(threshold, 2), **at})
    return points


def _caught(asked: Sequence[Asked], by: Weighed, threshold: float) -> float:
    passed = np.array([one.passed for one in asked])
    return round(float((~passed | (_scores(asked, by) < threshold)).mean()), 3)


def report(folder: Path, embedder: BundledEmbedder) -> dict[str, Any]:
    """Everything that is printed. Raises LabelledDataUnusable."""
    asked = ask(folder, embedder)
    held_out = [one for one in asked if not one.training]
    made: dict[str, Any] = {}
    for name, by in (("fitted", weighed(asked)), ("in_use", IN_USE)):
        made[name] = {
            "weights": dict(zip((field.name for field in fields(Doubts)), by.weights, strict=True)),
            "no_answer_below": by.no_answer_below,
            "doubtful_below": by.doubtful_below,
        }
        made[f"held_out_{name}"] = figures(held_out, by)
        made[f"curve_{name}"] = curve(asked, by)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with labelled sets")
    parser.add_argument("--json", type=Path, help="also write the report here")
    options = parser.parse_args(arguments)
    text = json.dumps(report(options.data, BundledEmbedder.load_now()), indent=2, ensure_ascii=False)
    sys.stdout.write(text + "\n")
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
