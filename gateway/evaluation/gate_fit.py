"""Fits the evidence gate of an embedding space and says how well it does, for each order of its evidence.

``qa-gateway eval --calibrate FILE`` and ``python -m eval.gate --data FOLDER [--json OUT]`` read ``*.json``
files of the form {passages: [{id, title?, text}], questions: [{question, passage, answerable}]}. Embedder
and reranker are those that the ``GATEWAY_*`` settings name, and so is the fusion. ``--write FILE`` keeps the
fit as the calibration file of that embedding space, with thresholds for the fused order and, where answers
are reranked, for the reranker's: reading every passage for it takes some minutes. Nothing in here is random.
"""

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.calibration import calibration_of, calibration_text, load_calibration
from gateway.adapters.embedded.embedder import CALIBRATION
from gateway.adapters.sql.releases import config_from
from gateway.answer.evidence import decide
from gateway.evaluation.gate_rows import Row, out_of_corpus, ranking
from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE, read_sets
from gateway.evaluation.models import Models, models_in_force
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.terms import TERMS_VERSION
from gateway.settings import Settings

Floats = NDArray[np.float64]

#: the whole passage's coverage adds nothing to these three
WEIGHED_NOW = ("top_similarity", "sentence_coverage", "match")
#: share of answerable training questions the gate may refuse, in the language it refuses most
REFUSALS = 0.05


def fit(features: Floats, labels: Floats, weights: Floats, shrink: float = 1e-3) -> Floats:
    """Weighted logistic regression by Newton's method; returns the weights and the constant."""
    x = np.column_stack([features, np.ones(len(features))])
    beta = np.zeros(x.shape[1])
    ridge = shrink * np.eye(len(beta))
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        gradient = x.T @ (weights * (p - labels)) + ridge @ beta
        hessian = (x * (weights * p * (1 - p))[:, None]).T @ x + ridge
        beta -= np.linalg.solve(hessian, gradient)
    return beta


def calibrate(rows: Sequence[Row]) -> RetrievalConfig:
    """One gate an order. Languages and labels weigh the same; each ``bias`` keeps refusals at REFUSALS in
    each language.
    """
    used = [r for r in rows if r.training and r.kind != NEAR]
    orders = sorted({r.signals.reranker for r in used})
    by_order = {order: [r for r in used if r.signals.reranker == order] for order in orders}
    gates = tuple(gate_of(mine, WEIGHED_NOW, order) for order, mine in by_order.items())
    plain = gate_of(by_order[""], ("top_similarity", "coverage"), "")
    w_similarity, w_coverage = (weight for _, weight in plain.weights)
    return RetrievalConfig("fitted", w_similarity, w_coverage, plain.bias, gates=gates)


def gate_of(rows: Sequence[Row], names: Sequence[str], reranker: str) -> GateFit:
    """Thresholds over these signals of these rows, all in one order."""
    sizes = Counter((r.language, r.kind) for r in rows)
    labels = np.array([float(r.kind == ANSWERABLE) for r in rows])
    weights = np.array([len(rows) / sizes[r.language, r.kind] / len(sizes) for r in rows])
    features = np.array([[getattr(r.signals, name) or 0.0 for name in names] for r in rows])
    fitted = [round(max(0.0, float(w)), 2) for w in fit(features, labels, weights)[:-1]]
    # A question that lacks a key term is refused whatever the bias is.
    scores = np.where([r.signals.missing_key_terms > 0 for r in rows], -np.inf, features @ fitted)
    biases = []
    for language in sorted({r.language for r in rows}):
        mine = np.array([r.language == language for r in rows]) & (labels == 1)
        biases.append(float(np.quantile(scores[mine], REFUSALS, method="lower")))
    return GateFit(tuple(zip(names, fitted, strict=True)), round(min(biases), 2), reranker=reranker)


def auc(positive: Floats, negative: Floats) -> float:
    """Chance that an answerable question outscores an outside one (ties count half)."""
    below = np.searchsorted(np.sort(negative), positive, side="left")
    upto = np.searchsorted(np.sort(negative), positive, side="right")
    return float(np.mean((below + upto) / 2) / len(negative))


def judge(rows: Sequence[Row], config: RetrievalConfig) -> dict[str, float]:
    """What the product's own gate does with these questions."""
    scores: dict[str, list[float]] = defaultdict(list)
    accepted: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        decision = decide(config, row.signals)
        scores[row.kind].append(decision.score)
        accepted[row.kind].append(decision.sufficient)
    report = {
        "auc": auc(np.array(scores[ANSWERABLE]), np.array(scores[OUTSIDE])),
        "false_refusals": 1 - float(np.mean(accepted[ANSWERABLE])),
        "false_accepts": float(np.mean(accepted[OUTSIDE])),
    }
    if accepted[NEAR]:
        report["near_accepts"] = float(np.mean(accepted[NEAR]))
    return {name: round(value, 4) for name, value in report.items()}


def report(folder: Path, models: Models) -> dict[str, Any]:
    """Everything that is printed. Raises LabelledDataUnusable, and what an endpoint's calls raise."""
    sets, embedder = read_sets(folder), models.embedder
    rows = [
        row for labelled in sets for row in out_of_corpus(labelled, embedder, models.settings, models.order())
    ]
    configs = {"fitted": calibrate(rows)}
    in_use = calibration_of(embedder.space, None)
    if in_use is None:  # nothing else is known of this space: this is what can be written
        configs["written"] = written(configs["fitted"], embedder.space)
    else:
        configs["in_use"] = in_use
    held_out = [r for r in rows if not r.training]
    return {
        "space": embedder.space.space_id,
        "terms": TERMS_VERSION,
        "retrieval": {labelled.name: ranking(labelled, embedder, models.settings) for labelled in sets},
        **{name: asdict(config) for name, config in configs.items()},
        **{f"held_out_{name}": by_order(held_out, config) for name, config in configs.items()},
    }


def by_order(rows: Sequence[Row], config: RetrievalConfig) -> dict[str, dict[str, dict[str, float]]]:
    """By order ("fused" for none) and set, and for all sets."""
    judged = {}
    for order in sorted({row.signals.reranker for row in rows}):
        mine = [row for row in rows if row.signals.reranker == order]
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in mine:
            groups[row.language].append(row)
        if config.gate(order) is not None:
            asked = {**groups, "all": mine}
            judged[order or "fused"] = {name: judge(group, config) for name, group in asked.items()}
    return judged


def written(fitted: RetrievalConfig, space: EmbeddingSpace) -> RetrievalConfig:
    """The fit as a file holds it. The least coverage is a matter of terms, so every space has the same."""
    least = CALIBRATION.min_coverage
    gates = tuple(replace(gate, min_coverage=least) for gate in fitted.gates)
    config = replace(fitted, min_coverage=least, gates=gates)
    figures = stable_hash(json.dumps(asdict(config)))[:8]
    return replace(config, version=f"{space.space_id}/gate-{figures}")


def write(path: Path, config: RetrievalConfig, space: EmbeddingSpace) -> None:
    """Whole or not at all. Raises ConfigurationError for a fit that no process would start with."""
    part = path.with_name(path.name + ".part")
    part.write_text(calibration_text(config, space), "utf-8")
    load_calibration(part, space)
    part.replace(path)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with labelled sets")
    parser.add_argument("--json", type=Path, help="also write the report here")
    parser.add_argument("--write", type=Path, help="write the calibration file here")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    with models_in_force(Settings()) as models:
        embedder = models.embedder
        made = report(options.data, models)
        text = json.dumps(made, indent=2, ensure_ascii=False)
        sys.stdout.write(text + "\n")
        if options.json:
            options.json.write_text(text + "\n", encoding="utf-8")
        if options.write:
            fit = written(config_from(json.dumps(made["fitted"])), embedder.space)
            write(options.write, fit, embedder.space)
