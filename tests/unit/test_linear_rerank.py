"""The linear reranker: what it weighs, what it does with odd passages, and how its weights are fitted."""

import json
import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import anyio
import numpy as np
import pytest
from anyio import from_thread
from numpy.typing import NDArray

from gateway.adapters.embedded.embedder import SPACE
from gateway.adapters.embedded.features import FEATURES, features
from gateway.adapters.embedded.reading import Reader
from gateway.adapters.embedded.rerank import CLOSE, LinearReranker
from gateway.adapters.embedded.weights import bundled_weights, weights_from
from gateway.adapters.memory.rerank import WordReranker
from gateway.context import Deadline
from gateway.errors import ConfigurationError, DeadlineExceeded, RerankerUnavailable
from gateway.evaluation.choice import Choice, fit
from gateway.release.model import EmbeddingSpace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.terms import terms_of
from tests.harness.chunks import sample_chunk
from tests.harness.serving import serving_world
from tests.harness.wire import request
from tests.harness.world import OPEN_GATE, World, open_gate

QUESTION = "Who repaired the harbour crane in 1904?"
RIGHT = "The town was poor. Ada Brown repaired the harbour crane in 1904. It rained."
BESIDE = "The harbour has a crane. In 1904 the roof of the town hall was repaired by nobody."
AWAY = "Bread is baked from flour, water and salt."
STATISTICS = TermStatistics(100, dict.fromkeys(terms_of(f"{RIGHT} {BESIDE}"), 3))


class HashedEmbedder:
    """Unit vectors of a text's letters; one that has ``broken`` in it has no numbers."""

    space = SPACE
    max_sensitivity = 3

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._one(text) for text in texts])

    def _one(self, text: str) -> NDArray[np.float32]:
        row = np.full(SPACE.dimension, 0.01, dtype=np.float32)
        for letter in text:
            row[ord(letter) % SPACE.dimension] += 1
        row /= np.linalg.norm(row)
        return row * np.float32("nan") if "broken" in text else row


class Slow(HashedEmbedder):
    """Its first call takes all the time there is."""

    def __init__(self, deadline: Deadline) -> None:
        self.calls, self._deadline = 0, deadline

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        while self._deadline.remaining():
            pass
        return super().vectors(texts)


def candidate(content: str, similarity: float = 0.5, title: str = "Town") -> Candidate:
    return Candidate(sample_chunk(content, title=title), similarity, True, 0.1, "rrf", "dense #1")


def reranker() -> LinearReranker:
    return LinearReranker(HashedEmbedder(), bundled_weights())


def rows(*contents: str, question: str = QUESTION) -> dict[str, list[float]]:
    """Features by name, one number a passage."""
    vectors = HashedEmbedder().vectors
    reader = Reader(vectors)
    read = reader.read([("Town", content) for content in contents])
    found = features(question, read, [0.5] * len(read), STATISTICS, reader, vectors)
    assert found.shape == (len(contents), len(FEATURES))
    return {name: found[:, column].tolist() for column, name in enumerate(FEATURES)}


async def scores(*contents: str, question: str = QUESTION) -> Sequence[float]:
    candidates = [candidate(content) for content in contents]
    return await reranker().scores(question, candidates, STATISTICS, Deadline.after(10_000))


def test_features_say_what_question_and_passage_have_in_common() -> None:
    """A sentence that holds all of it beats the same words all over a passage, and both beat none."""
    found = rows(RIGHT, BESIDE, AWAY)
    assert found["bigrams"][0] > found["bigrams"][1] > found["bigrams"][2]
    assert found["pair_coverage"][0] >= found["pair_coverage"][1] > found["pair_coverage"][2]
    assert found["coverage"][0] == pytest.approx(1.0)
    assert found["coverage"][2] == 0.0
    assert found["bm25"][2] == 0.0
    assert max(found["bm25"]) == 1.0
    assert found["soft_sentence"][0] > found["soft_sentence"][2]
    assert found["soft_coverage"][0] == pytest.approx(max(found["soft_coverage"]))


def test_a_heading_counts_for_the_passage_and_is_no_sentence() -> None:
    """It covers a term that the content never says."""
    vectors = HashedEmbedder().vectors
    for heading, covered in (("Harbour crane", 1.0), ("", 0.0)):
        reader = Reader(vectors)
        read = reader.read([(heading, "It was repaired.")])
        found = features("harbour crane", read, [0.5], STATISTICS, reader, vectors)
        assert found[0, FEATURES.index("coverage")] == covered
        assert found[0, FEATURES.index("pair_coverage")] == 0.0


async def test_the_passage_that_says_it_comes_first() -> None:
    """Wherever it stood before."""
    for contents in ((RIGHT, BESIDE, AWAY), (AWAY, BESIDE, RIGHT)):
        found = await scores(*contents)
        assert sorted(range(3), key=lambda i: -found[i]) == [contents.index(c) for c in (RIGHT, BESIDE, AWAY)]


async def test_equal_passages_have_equal_numbers_and_order_changes_none() -> None:
    """So that ties stay as they were."""
    first = await scores(RIGHT, BESIDE, RIGHT, AWAY)
    assert first[0] == first[2]
    turned = await scores(AWAY, RIGHT, BESIDE, RIGHT)
    assert sorted(turned) == pytest.approx(sorted(first))


@pytest.mark.parametrize("question", [QUESTION, "?", "的", "the", "x" * 10_000, "1904 " * 500], ids=range(6))
@pytest.mark.parametrize(
    "content", [".", " ", "\u200b", "w" * 10_000, "。。。", "|a|\n|-|\n", "```", "a. " * 3000], ids=range(8)
)
async def test_odd_passages_and_questions_have_finite_numbers(question: str, content: str) -> None:
    """Nothing to read, one endless word, thousands of sentences."""
    found = await scores(content, RIGHT, question=question)
    assert len(found) == 2
    assert all(map(math.isfinite, found))


async def test_what_is_not_read_stays_behind_in_its_order() -> None:
    """However well it fits: reading is what a rerank costs."""
    found = await scores(*[AWAY] * CLOSE, RIGHT, BESIDE)
    assert min(found[:CLOSE]) > found[CLOSE] > found[CLOSE + 1]


async def test_no_candidates_have_no_numbers() -> None:
    """An empty search isn't an error."""
    assert await scores() == ()


@pytest.mark.parametrize("broken", ["sentence", "question", "similarity"])
async def test_a_vector_without_numbers_is_an_error_and_no_order(broken: str) -> None:
    """NaN compares as neither more nor less: what stood first would stay first."""
    odd = candidate(
        "A broken part." if broken == "sentence" else RIGHT, math.nan if broken == "similarity" else 0.5
    )
    question = "broken?" if broken == "question" else QUESTION
    with pytest.raises(RerankerUnavailable):
        await reranker().scores(question, [odd, candidate(AWAY)], STATISTICS, Deadline.after(10_000))


async def test_a_deadline_that_has_passed_is_named() -> None:
    """Nothing begins after it."""
    with pytest.raises(DeadlineExceeded) as late:
        await reranker().scores(QUESTION, [candidate(RIGHT)], STATISTICS, Deadline.after(0))
    assert late.value.stage == "rerank"


async def test_a_question_out_of_time_ends_before_its_next_passage() -> None:
    """What nobody waits for must not keep a core busy."""
    deadline = Deadline.after(300)
    embedder = Slow(deadline)
    linear = LinearReranker(embedder, bundled_weights())
    with pytest.raises(DeadlineExceeded) as late:
        await linear.scores(QUESTION, [candidate(RIGHT), candidate(AWAY)], STATISTICS, deadline)
    assert (late.value.stage, embedder.calls) == ("rerank", 1)


class Leaving(HashedEmbedder):
    """Whoever asked leaves at its first call."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.calls, self._scope = 0, scope

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        from_thread.run_sync(self._scope.cancel)
        return super().vectors(texts)


async def test_a_question_that_is_cancelled_ends_before_its_next_passage() -> None:
    """Its place is free for the next one at once."""
    with anyio.CancelScope() as scope:
        embedder = Leaving(scope)
        linear = LinearReranker(embedder, bundled_weights())
        waited = [candidate(RIGHT), candidate(AWAY)]
        await linear.scores(QUESTION, waited, STATISTICS, Deadline.after(60_000))
    assert (scope.cancelled_caught, embedder.calls) == (True, 1)


@pytest.mark.parametrize("in_process", [True, False])
def test_in_this_process_one_question_at_a_time_is_ranked(in_process: bool) -> None:
    """An endpoint has as many places as its settings say."""
    world = World(reranker=reranker() if in_process else WordReranker(), rerank_concurrency=5)
    (places,) = [bulkhead.size for bulkhead in world.services.bulkheads if bulkhead.name == "rerank"]
    assert places == (1 if in_process else 5)


class Here(WordReranker):
    """In this process."""

    @property
    def in_process(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "asked"), [(Here, 2), (WordReranker, 1)])
async def test_only_an_endpoint_that_fails_is_left_alone(kind: type[WordReranker], asked: int) -> None:
    """What runs here is asked again each time."""
    failing = kind(error=RerankerUnavailable("down"))
    world = World(reranker=failing, config=open_gate(failing.version), breaker_failures=1)
    await world.learn({"right.md": RIGHT})
    async with serving_world(world) as port:
        for _ in range(2):
            path = f"/v1/search?query={quote(QUESTION)}&knowledge_base=handbook"
            head, _ = await request(port, "GET", path, token=world.token())
            assert head.status == 200
    assert len(failing.seen) == asked


def test_the_bundled_weights_are_for_the_bundled_space_and_every_feature() -> None:
    """And the reranker says their version and its embedder's clearance."""
    weights = bundled_weights()
    assert (weights.space_id, len(weights.values)) == (SPACE.space_id, len(FEATURES))
    assert (reranker().version, reranker().max_sensitivity) == (weights.version, 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"weights": {}},
        {"weights": None},
        {"weights": {**dict.fromkeys(FEATURES, 1.0), "more": 1.0}},
        {"weights": {**dict.fromkeys(FEATURES, 1.0), "bm25": math.nan}},
        {"weights": {**dict.fromkeys(FEATURES, 1.0), "bm25": "much"}},
    ],
    ids=["none", "null", "one too many", "nan", "text"],
)
def test_weights_that_are_not_whole_are_refused(changed: dict[str, object]) -> None:
    """Nothing is guessed."""
    good: dict[str, object] = {"version": "v", "space_id": "s", "weights": dict.fromkeys(FEATURES, 1.0)}
    assert weights_from(json.dumps(good)).values == (1.0,) * len(FEATURES)
    with pytest.raises(ConfigurationError) as refused:
        weights_from(json.dumps(good | changed))
    assert refused.value.reason == "ranking_weights_unusable"
    for text in ("", "[]", "{}"):
        with pytest.raises(ConfigurationError):
            weights_from(text)


def test_other_weights_are_another_version() -> None:
    """Thresholds that were fitted for the one order aren't taken for the other."""
    good = {"version": "v", "space_id": "s", "weights": dict.fromkeys(FEATURES, 1.0)}
    versions = [
        weights_from(json.dumps(good | {"weights": dict.fromkeys(FEATURES, 1.0) | changed})).version
        for changed in ({}, {"bm25": 1.0}, {"bm25": 1.01}, {"dense": 1.01})
    ]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3
    assert all(version.startswith("v-") for version in versions)


def test_weights_of_another_space_are_refused() -> None:
    """They would weigh other cosines."""
    embedder = HashedEmbedder()
    embedder.space = EmbeddingSpace("other-8", "other", 8)
    with pytest.raises(ConfigurationError):
        LinearReranker(embedder, bundled_weights())


def test_a_fit_finds_the_column_that_tells_the_right_one() -> None:
    """One tells, one tells the contrary, one nothing; a question without its passage changes nothing."""
    random = np.random.default_rng(1)
    choices = []
    for _ in range(60):
        made = random.normal(size=(5, 3))
        right = int(np.argmax(made[:, 0] - 0.5 * made[:, 1] + 0.3 * random.normal(size=5)))
        choices.append(Choice(made, right))
    weights = fit(choices)
    assert weights[0] > -weights[1] > abs(weights[2])
    assert np.mean([choice.rank(weights) == 1 for choice in choices]) > 0.6
    lost = Choice(random.normal(size=(5, 3)), None)
    assert fit([*choices, lost]) == pytest.approx(weights)
    assert lost.rank(weights) == math.inf


def test_a_tie_counts_against_the_right_one() -> None:
    """Else a reranker that says 0 to everything would be perfect."""
    assert Choice(np.zeros((4, 1)), 2).rank(np.ones(1)) == 4.0


async def searched(linear: LinearReranker | None) -> list[dict[str, Any]]:
    """Search results over two documents, one of which repeats the question's words all over."""
    scattered = "A crane. Repaired: crane, crane. The harbour, a harbour crane? 1904, repaired 1904, harbour."
    world = World(
        reranker=linear, config=open_gate(linear.version) if linear else OPEN_GATE, rerank_cap_ms=30_000
    )
    await world.learn({"scattered.md": scattered, "right.md": RIGHT, "bread.md": AWAY})
    async with serving_world(world) as port:
        path = f"/v1/search?query={quote(QUESTION)}&knowledge_base=handbook"
        head, body = await request(port, "GET", path, token=world.token())
    assert head.status == 200
    return list(json.loads(body)["results"])


async def test_a_search_is_in_the_order_of_the_linear_reranker() -> None:
    """Its numbers, its label and its place go out with each result."""
    fused, ranked = await searched(None), await searched(reranker())
    assert [fused[0]["uri"], ranked[0]["uri"]] == ["scattered.md", "right.md"]
    assert {result["uri"] for result in fused} == {result["uri"] for result in ranked}
    assert {result["score_label"] for result in ranked} == {"rerank"}
    assert [result["hit_reason"].rpartition(", ")[2] for result in ranked] == [
        f"rerank #{place}" for place in range(1, len(ranked) + 1)
    ]
    numbers = [result["raw_score"] for result in ranked]
    assert numbers == sorted(numbers, reverse=True)
