"""Fits the evidence gate of an embedding space and says how well it does.

``qa-gateway eval --calibrate FILE`` and ``python -m eval.gate --data FOLDER [--json OUT]`` read ``*.json``
files of the form {passages: [{id, title?, text}], questions: [{question, passage, answerable}]}, and embed
with the bundled model, or with ``--embedding-base-url URL --embedding-name NAME --embedding-dimension N``
(the key is taken from GATEWAY_EMBEDDING_API_KEY). ``--write FILE`` keeps the fit as the calibration file of
that space.

Negatives are out of corpus: half of the articles is indexed and asked about the other half, then the
reverse. The articles of every half are split once more, so that the gate is fitted on questions about
other articles than it is tested on.
"""

import argparse
import contextlib
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gateway.adapters.embedded.calibration import calibration_of, calibration_text, load_calibration
from gateway.adapters.embedded.embedder import CALIBRATION, BundledEmbedder
from gateway.adapters.sql.releases import config_from
from gateway.answer.evidence import GateSignals, decide
from gateway.answer.signals import ReadPassage, Wanted
from gateway.release.model import EmbeddingSpace, GateFit, RetrievalConfig
from gateway.retrieval.chunk import embedded_text, stable_hash
from gateway.retrieval.fusion import reciprocal_rank_fusion
from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import TERMS_VERSION, terms_of

Floats = NDArray[np.float64]

K1, B = 1.5, 0.75
DEPTH = 50
EVIDENCE = 6
WEIGHTS = {"dense": 1.0, "bm25": 2.0}
#: the whole passage's coverage adds nothing to these three
WEIGHED_NOW = ("top_similarity", "sentence_coverage", "match")
#: share of answerable training questions the gate may refuse, in the language it refuses most
REFUSALS = 0.05


class Vectors(Protocol):
    """An embedder as a command uses it."""

    @property
    def space(self) -> EmbeddingSpace: ...

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class Passage:
    id: str
    article: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    text: str
    passage: str
    answerable: bool


@dataclass(frozen=True)
class Row:
    """One question put to one index. ``kind``: answerable, near (right topic, no answer), outside."""

    language: str
    kind: str
    training: bool
    signals: GateSignals


class Index:
    """BM25 and vectors of a few hundred passages in memory."""

    def __init__(self, passages: Sequence[Passage], embedder: Vectors) -> None:
        self._ids = [p.id for p in passages]
        texts = [embedded_text(p.title, "", p.text) for p in passages]
        counts = [Counter(terms_of(text)) for text in texts]
        self._read = {p.id: ReadPassage.reading(p.title, p.text) for p in passages}
        self.statistics = TermStatistics(len(passages), Counter(t for c in counts for t in c))
        self._vectors = embed(embedder, texts)
        lengths = np.array([c.total() for c in counts], dtype=np.float64)
        self._postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for place, count in enumerate(counts):
            length = K1 * (1 - B + B * lengths[place] / lengths.mean())
            for term, n in count.items():
                self._postings[term].append((place, n * (K1 + 1) / (n + length)))

    def bm25(self, terms: Iterable[str]) -> list[str]:
        scores = np.zeros(len(self._ids))
        for term in set(terms):
            for place, weight in self._postings.get(term, ()):
                scores[place] += self.statistics.idf(term) * weight
        best = np.argsort(-scores, kind="stable")[:DEPTH]
        return [self._ids[i] for i in best if scores[i] > 0]

    def dense(self, vector: NDArray[np.float32]) -> dict[str, float]:
        similarities = self._vectors @ vector
        best = np.argsort(-similarities, kind="stable")[:DEPTH]
        return {self._ids[i]: float(similarities[i]) for i in best}

    def fused(self, terms: Iterable[str], dense: Mapping[str, float]) -> list[str]:
        routes = {"bm25": self.bm25(terms), "dense": list(dense)}
        return [item for item, _ in reciprocal_rank_fusion(routes, WEIGHTS)]

    def signals(self, question: str, vector: NDArray[np.float32]) -> GateSignals:
        """As a request computes them: over the evidence, dense hits within DEPTH only."""
        terms, dense = terms_of(question), self.dense(vector)
        evidence = self.fused(terms, dense)[:EVIDENCE]
        passages = [self._read[item] for item in evidence]
        wanted = Wanted.of(terms, self.statistics)
        return GateSignals(
            candidates=len(evidence),
            expired=0,
            top_similarity=max((dense[item] for item in evidence if item in dense), default=None),
            coverage=wanted.coverage(passages),
            missing_key_terms=missing_key_terms(question, [passage.terms for passage in passages]),
            sentence_coverage=wanted.sentence_coverage(passages),
            match=wanted.match(passages),
        )


def embed(embedder: Vectors, texts: Iterable[str]) -> NDArray[np.float32]:
    rest = iter(texts)
    return np.concatenate([embedder.vectors(part) for part in iter(lambda: list(islice(rest, 64)), [])])


def read(path: Path) -> tuple[list[Passage], list[Question]]:
    """A passage without a title is an article of its own."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    passages = [
        Passage(str(p["id"]), p.get("title") or str(p["id"]), p.get("title") or "", p["text"])
        for p in raw["passages"]
    ]
    questions = [Question(q["question"], str(q["passage"]), q["answerable"]) for q in raw["questions"]]
    return passages, questions


def ranking(
    passages: Sequence[Passage], questions: Sequence[Question], embedder: Vectors
) -> dict[str, dict[str, float]]:
    """recall@5 and MRR (over the first DEPTH) of each route on answerable questions, all indexed."""
    index = Index(passages, embedder)
    asked = [q for q in questions if q.answerable]
    ranks: dict[str, list[float]] = defaultdict(list)
    for question, vector in zip(asked, embed(embedder, (q.text for q in asked)), strict=True):
        terms, dense = terms_of(question.text), index.dense(vector)
        routes = {"bm25": index.bm25(terms), "dense": list(dense), "rrf": index.fused(terms, dense)}
        for route, found in routes.items():
            place = found.index(question.passage) + 1 if question.passage in found else np.inf
            ranks[route].append(float(place))
    return {
        route: {
            "recall@5": round(float(np.mean(np.array(r) <= 5)), 4),
            "mrr": round(float(np.mean(1 / np.array(r))), 4),
        }
        for route, r in ranks.items()
    }


def out_of_corpus(
    language: str, passages: Sequence[Passage], questions: Sequence[Question], embedder: Vectors
) -> list[Row]:
    """Every question against both halves: the one with its article and the one without."""
    articles = sorted({p.article for p in passages})
    place = {article: i for i, article in enumerate(articles)}
    article_of = {p.id: p.article for p in passages}
    vectors = embed(embedder, (q.text for q in questions))
    rows = []
    for half in (0, 1):
        index = Index([p for p in passages if place[p.article] % 2 == half], embedder)
        for question, vector in zip(questions, vectors, strict=True):
            at = place[article_of[question.passage]]
            kind = "outside" if at % 2 != half else "answerable" if question.answerable else "near"
            training = at // 2 % 2 == 0
            rows.append(Row(language, kind, training, index.signals(question.text, vector)))
    return rows


def fit(features: Floats, labels: Floats, weights: Floats) -> Floats:
    """Weighted logistic regression by Newton's method; returns the weights and the constant."""
    x = np.column_stack([features, np.ones(len(features))])
    beta = np.zeros(x.shape[1])
    ridge = 1e-3 * np.eye(len(beta))
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ beta))
        gradient = x.T @ (weights * (p - labels)) + ridge @ beta
        hessian = (x * (weights * p * (1 - p))[:, None]).T @ x + ridge
        beta -= np.linalg.solve(hessian, gradient)
    return beta


def calibrate(rows: Sequence[Row]) -> RetrievalConfig:
    """Languages and labels weigh the same; ``bias`` keeps refusals at REFUSALS in each language."""
    used = [r for r in rows if r.training and r.kind != "near"]
    sizes = Counter((r.language, r.kind) for r in used)
    labels = np.array([float(r.kind == "answerable") for r in used])
    weights = np.array([len(used) / sizes[r.language, r.kind] / len(sizes) for r in used])
    gate = gate_of(used, labels, weights, WEIGHED_NOW)
    plain = gate_of(used, labels, weights, ("top_similarity", "coverage"))
    w_similarity, w_coverage = (weight for _, weight in plain.weights)
    return RetrievalConfig("fitted", w_similarity, w_coverage, plain.bias, gates=(gate,))


def gate_of(rows: Sequence[Row], labels: Floats, weights: Floats, names: Sequence[str]) -> GateFit:
    """Thresholds over these signals."""
    features = np.array([[getattr(r.signals, name) or 0.0 for name in names] for r in rows])
    fitted = [round(max(0.0, float(w)), 2) for w in fit(features, labels, weights)[:-1]]
    # A question that lacks a key term is refused whatever the bias is.
    scores = np.where([r.signals.missing_key_terms > 0 for r in rows], -np.inf, features @ fitted)
    biases = []
    for language in sorted({r.language for r in rows}):
        mine = np.array([r.language == language for r in rows]) & (labels == 1)
        biases.append(float(np.quantile(scores[mine], REFUSALS, method="lower")))
    return GateFit(tuple(zip(names, fitted, strict=True)), round(min(biases), 2))


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
        "auc": auc(np.array(scores["answerable"]), np.array(scores["outside"])),
        "false_refusals": 1 - float(np.mean(accepted["answerable"])),
        "false_accepts": float(np.mean(accepted["outside"])),
    }
    if accepted["near"]:
        report["near_accepts"] = float(np.mean(accepted["near"]))
    return {name: round(value, 4) for name, value in report.items()}


def report(folder: Path, embedder: Vectors | None = None) -> dict[str, Any]:
    """Everything that is printed, of the bundled model unless another is given. Raises FileNotFoundError
    when the folder has no data.
    """
    embedder = embedder or BundledEmbedder.load_now()
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no *.json in {folder}")
    rows: list[Row] = []
    ranks = {}
    for path in files:
        passages, questions = read(path)
        ranks[path.stem] = ranking(passages, questions, embedder)
        rows += out_of_corpus(path.stem, passages, questions, embedder)
    configs = {"fitted": calibrate(rows)}
    in_use = calibration_of(embedder.space, None)
    if in_use is None:  # nothing else is known of this space: this is what can be written
        configs["written"] = written(configs["fitted"], embedder.space)
    else:
        configs["in_use"] = in_use
    held_out = [r for r in rows if not r.training]
    groups = {path.stem: [r for r in held_out if r.language == path.stem] for path in files}
    groups["all"] = held_out
    return {
        "space": embedder.space.space_id,
        "terms": TERMS_VERSION,
        "retrieval": ranks,
        **{name: asdict(config) for name, config in configs.items()},
        **{
            f"held_out_{name}": {group: judge(asked, config) for group, asked in groups.items()}
            for name, config in configs.items()
        },
    }


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


@contextlib.contextmanager
def chosen_embedder(options: argparse.Namespace) -> Iterator[Vectors]:
    """The one that the command line names, else the bundled one."""
    if options.embedding_base_url is None:
        yield BundledEmbedder.load_now()
        return
    from gateway.adapters.openai.embedding import OpenAIEmbedder
    from gateway.evaluation.endpoint import Endpoint

    embedder = OpenAIEmbedder(
        options.embedding_base_url,
        options.embedding_name,
        os.environ.get("GATEWAY_EMBEDDING_API_KEY"),
        options.embedding_dimension,
        max_sensitivity=0,
        connect_cap_ms=5000,
        retries=5,
        send_dimension=options.embedding_send_dimension,
    )
    with Endpoint(embedder) as endpoint:
        yield endpoint


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with labelled sets")
    parser.add_argument("--json", type=Path, help="also write the report here")
    parser.add_argument("--write", type=Path, help="write the calibration file here")
    parser.add_argument("--embedding-base-url", help="an OpenAI-compatible endpoint, up to /v1")
    parser.add_argument("--embedding-name", help="its model")
    parser.add_argument("--embedding-dimension", type=int, help="the length of its vectors")
    parser.add_argument("--embedding-send-dimension", action="store_true", help="ask for that length")
    options = parser.parse_args(arguments)
    endpoint = (options.embedding_base_url, options.embedding_name, options.embedding_dimension)
    if any(endpoint) and not all(endpoint):
        parser.error("an endpoint needs --embedding-base-url, --embedding-name and --embedding-dimension")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = options_of(arguments)
    with chosen_embedder(options) as embedder:
        made = report(options.data, embedder)
        text = json.dumps(made, indent=2, ensure_ascii=False)
        sys.stdout.write(text + "\n")
        if options.json:
            options.json.write_text(text + "\n", encoding="utf-8")
        if options.write:
            fit = written(config_from(json.dumps(made["fitted"])), embedder.space)
            write(options.write, fit, embedder.space)
