"""Fits the evidence gate of an embedding space and says how well it does, for each order of its evidence.

``qa-gateway eval --calibrate FILE`` and ``python -m eval.gate --data FOLDER [--json OUT]`` read ``*.json``
files of the form {passages: [{id, title?, text}], questions: [{question, passage, answerable}]}. Embedder
and reranker are those that the ``GATEWAY_*`` settings name, and so is the fusion. ``--write FILE`` keeps the
fit as the calibration file of that embedding space, with thresholds for the fused order and, where answers
are reranked, for the reranker's, each for every script that the sets ask enough in: reading every passage
for it takes some minutes. Nothing in here is random.
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
from gateway.answer.evidence import GateDecision, decide
from gateway.evaluation.gate_rows import Row, out_of_corpus, ranking
from gateway.evaluation.labelled import ANSWERABLE, NEAR, OUTSIDE, read_sets
from gateway.evaluation.models import Models, models_in_force
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.script import SCRIPTS
from gateway.retrieval.terms import TERMS_VERSION
from gateway.settings import Settings

Floats = NDArray[np.float64]
#: a question, and what the gate said
Decided = tuple[Row, GateDecision]

#: the whole passage's coverage adds nothing to these three, and to the number of a reranker that has one
WEIGHED_NOW = ("top_similarity", "sentence_coverage", "match")
#: share of the answerable training questions of a script that the gate may refuse. Less than the .05 that are
#: wanted: articles differ, and of one that wasn't seen it refuses some more
REFUSALS = 0.04
#: so many answerable questions a script needs for thresholds of its own: with fewer a quantile is a guess
ENOUGH = 100
#: parts of the articles, each judged by what was fitted on the others
FOLDS = 8


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
    """One gate an order for questions in any script, and where there are two or more scripts with ENOUGH
    questions one for each of them. Languages and labels weigh the same.
    """
    used = [r for r in rows if r.kind != NEAR]
    orders = sorted({r.signals.reranker for r in used})
    by_order = {order: [r for r in used if r.signals.reranker == order] for order in orders}
    gates = tuple(gate for mine in by_order.values() for gate in gates_of(mine))
    plain = gate_of(by_order[""], ("top_similarity", "coverage"))
    w_similarity, w_coverage = (weight for _, weight in plain.weights)
    return RetrievalConfig("fitted", w_similarity, w_coverage, plain.bias, gates=gates)


def gates_of(rows: Sequence[Row]) -> list[GateFit]:
    """Of rows in one order. The gate for any script is the strictest that one of the fitted scripts wants."""
    numbered = all(r.signals.rerank_score is not None for r in rows)
    names = (*WEIGHED_NOW, "rerank_score") if numbered else WEIGHED_NOW
    asked = Counter((r.language, r.signals.script) for r in rows if r.kind == ANSWERABLE)
    # a set's few questions in another script would weigh there as much as all of that script's own
    parts = {
        script: [r for r in rows if r.signals.script == script and asked[r.language, script] >= ENOUGH]
        for script in SCRIPTS
    }
    fitted = [replace(gate_of(mine, names), script=script) for script, mine in parts.items() if mine]
    if len(fitted) < 2:
        return [gate_of(rows, names)]
    return [gate_of(rows, names, strictest=True), *fitted]


def gate_of(rows: Sequence[Row], names: Sequence[str], *, strictest: bool = False) -> GateFit:
    """Thresholds over these signals of these rows, all in one order: REFUSALS of the answerable questions in
    the language that is refused most; or, ``strictest``, in the script that is refused least.
    """
    sizes = Counter((r.language, r.kind) for r in rows)
    labels = np.array([float(r.kind == ANSWERABLE) for r in rows])
    weights = np.array([len(rows) / sizes[r.language, r.kind] / len(sizes) for r in rows])
    features = np.array([[getattr(r.signals, name) or 0.0 for name in names] for r in rows])
    fitted = [round(max(0.0, float(w)), 2) for w in fit(features, labels, weights)[:-1]]
    # A question that lacks a key term is refused whatever the bias is.
    scores = np.where([r.signals.missing_key_terms > 0 for r in rows], -np.inf, features @ fitted)
    biases = []
    groups = np.array([r.signals.script if strictest else r.language for r in rows])
    for group, size in Counter(groups[labels == 1].tolist()).items():
        if not strictest or size >= ENOUGH:
            mine = (groups == group) & (labels == 1)
            biases.append(float(np.quantile(scores[mine], REFUSALS, method="lower")))
    bias = round(max(biases) if strictest else min(biases), 2)
    return GateFit(tuple(zip(names, fitted, strict=True)), bias, reranker=rows[0].signals.reranker)


def auc(positive: Floats, negative: Floats) -> float:
    """Chance that an answerable question outscores an outside one (ties count half)."""
    below = np.searchsorted(np.sort(negative), positive, side="left")
    upto = np.searchsorted(np.sort(negative), positive, side="right")
    return float(np.mean((below + upto) / 2) / len(negative))


def cross_validated(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """As ``figures``, of all articles: every question is decided by a fit on other articles than its own."""
    articles = sorted({(row.language, row.article) for row in rows})
    fold_of = {article: place % FOLDS for place, article in enumerate(articles)}
    folds = [fold_of[row.language, row.article] for row in rows]
    decided: list[Decided] = []
    for fold in sorted(set(folds)):
        others = [row for row, its in zip(rows, folds, strict=True) if its != fold]
        if others:
            mine = [row for row, its in zip(rows, folds, strict=True) if its == fold]
            decided += decisions(mine, calibrate(others))
    return figures(decided)


def figures(decided: Sequence[Decided]) -> dict[str, dict[str, dict[str, float]]]:
    """By order ("fused" for none) and set, and for all sets."""
    found: dict[str, dict[str, list[Decided]]] = defaultdict(lambda: defaultdict(list))
    for row, decision in decided:
        for group in (row.language, "all"):
            found[row.signals.reranker or "fused"][group].append((row, decision))
    return {
        order: {group: rates(mine) for group, mine in groups.items()}
        for order, groups in sorted(found.items())
    }


def rates(decided: Sequence[Decided]) -> dict[str, float]:
    """What a gate did with these questions."""
    scores: dict[str, list[float]] = defaultdict(list)
    accepted: dict[str, list[bool]] = defaultdict(list)
    for row, decision in decided:
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
    configs = {"fitted": calibrate([row for row in rows if row.training])}
    in_use = calibration_of(embedder.space, None)
    if in_use is None:  # nothing else is known of this space: this is what can be written
        configs["written"] = written(configs["fitted"], embedder.space)
    else:
        configs["in_use"] = in_use
    held_out = [r for r in rows if not r.training]
    decided = {name: decisions(held_out, config) for name, config in configs.items()}
    return {
        "space": embedder.space.space_id,
        "terms": TERMS_VERSION,
        "retrieval": {labelled.name: ranking(labelled, embedder, models.settings) for labelled in sets},
        **{name: asdict(config) for name, config in configs.items()},
        **{f"held_out_{name}": figures(mine) for name, mine in decided.items()},
        "cross_validated": cross_validated(rows),
    }


def decisions(rows: Sequence[Row], config: RetrievalConfig) -> list[Decided]:
    """The product's own gate on these questions; those in an order that it has no thresholds for left out."""
    return [
        (row, decide(config, row.signals)) for row in rows if config.gate(row.signals.reranker) is not None
    ]


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
