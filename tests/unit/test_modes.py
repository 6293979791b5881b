"""Modes of the retriever: which path reads the vectors, when the other one does, and what scores mean."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from gateway.adapters.langchain.metric import similarity_of
from gateway.adapters.memory.models import FixedEmbedder
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.context import Deadline
from gateway.errors import (
    DeadlineExceeded,
    EmbeddingSpaceMismatch,
    GatewayError,
    InvalidField,
    InvariantViolated,
    UnscopedAccess,
    VectorStoreUnavailable,
)
from gateway.observe.metrics import Metrics
from gateway.retrieval.embedding import Embedders
from gateway.retrieval.modes import EMBEDDED_STORE, NOT_INSTALLED, DenseRoute, Mode, Served
from gateway.retrieval.retriever import Found, FusionSettings, Retriever
from gateway.retrieval.store import Hit
from tests.contract.vector_world import EAST, SPACE, chunk, fill, query, row, soon
from tests.harness.dense_paths import Asked, Leaking, Misnamed

#: vectors of stored passages, what they share with EAST, and what that is as a squared distance
BY_COSINE = {
    "same": (EAST, 0.0),
    "between": ((0.6, 0.8, 0.0), 0.8),
    "orthogonal": ((0.0, 1.0, 0.0), 2.0),
    "opposite": ((-1.0, 0.0, 0.0), 4.0),
}


@dataclass
class Paths:
    """Both paths over one twin, and what each of them was asked."""

    vectors: MemoryVectors = field(default_factory=MemoryVectors)

    def __post_init__(self) -> None:
        self.sdk, self.framework = Asked(self.vectors), Asked(self.vectors)

    def retriever(self, **chosen: Any) -> Retriever:
        return Retriever(
            Embedders(FixedEmbedder()),
            _Both(self.sdk, self.vectors),
            FusionSettings(depth=24, k=60, dense_weight=1.0, lexical_weight=1.0),
            **{"vectorstore": self.framework, **chosen},
        )

    async def search(
        self, mode: Mode = Mode.AUTO, *, deadline: Deadline | None = None, **chosen: Any
    ) -> Found:
        return await self.retriever(**chosen).search(query(), "common?", EAST, deadline or soon(), mode=mode)


class _Both:
    """A ChunkReader whose vectors come from one part and whose words come from another."""

    def __init__(self, dense: Asked, words: MemoryVectors) -> None:
        self.dense, self.lexical, self.fetch = dense.dense, words.lexical, words.fetch
        self.permitted, self.consistency = words.permitted, words.consistency


@pytest_asyncio.fixture
async def paths() -> Paths:
    """Four passages that the query may see, of which one has the question's word, and one it may not."""
    made = Paths()
    await made.vectors.prepare(SPACE)
    rows = [
        row(name, vector, ("common",) if name == "opposite" else ("other",))
        for name, (vector, _) in BY_COSINE.items()
    ]
    await fill(made.vectors, "r1", *rows, row("hidden", acl_class=2))
    return made


def names(found: Found) -> list[str]:
    return sorted(candidate.chunk.chunk_id for candidate in found.candidates)


@pytest.mark.parametrize(
    ("mode", "by"), [("auto", "vectorstore"), ("vectorstore", "vectorstore"), ("sdk", "sdk")]
)
async def test_a_mode_says_which_path_has_served(paths: Paths, mode: str, by: str) -> None:
    """And only that one was asked for vectors, with the very query that came in."""
    found = await paths.search(Mode(mode))
    assert (found.served_by, found.fallback) == (by, None)
    served, other = (paths.sdk, paths.framework) if by == "sdk" else (paths.framework, paths.sdk)
    assert (served.queries, other.queries) == ([query()], [])
    assert names(found) == sorted(BY_COSINE)


@pytest.mark.parametrize(
    ("chosen", "fallback"),
    [({"vectorstore": None}, NOT_INSTALLED), ({"embedded": True}, EMBEDDED_STORE)],
    ids=["not installed", "embedded"],
)
async def test_auto_says_why_it_did_not_try(paths: Paths, chosen: dict[str, Any], fallback: str) -> None:
    """Nothing is paid for a path that isn't there, or gains nothing."""
    found = await paths.search(**chosen)
    assert (found.served_by, found.fallback) == (Mode.SDK, fallback)
    assert (len(paths.sdk.queries), paths.framework.queries) == (1, [])
    assert names(found) == sorted(BY_COSINE)


async def test_a_mode_that_is_not_installed_is_an_error_before_anything_is_asked(paths: Paths) -> None:
    """Whoever asks for the path by name isn't served by another."""
    retriever = paths.retriever(vectorstore=None)
    with pytest.raises(InvalidField):
        retriever.expect(Mode.VECTORSTORE)
    with pytest.raises(InvalidField):
        await paths.search(Mode.VECTORSTORE, vectorstore=None)
    assert paths.sdk.queries == []


async def test_the_embedded_store_can_be_read_through_the_framework_by_name(paths: Paths) -> None:
    """What auto leaves out isn't forbidden."""
    assert (await paths.search(Mode.VECTORSTORE, embedded=True)).served_by is Mode.VECTORSTORE


@pytest.mark.parametrize(
    "error", [VectorStoreUnavailable(), DeadlineExceeded("retrieval")], ids=lambda e: e.code
)
async def test_auto_falls_back_with_the_same_filter(paths: Paths, error: GatewayError) -> None:
    """The second path gets the query that the first one had, and what is left of the time."""
    paths.framework.error = error
    deadline = soon()
    found = await paths.search(deadline=deadline)
    assert (found.served_by, found.fallback) == (Mode.SDK, error.code)
    assert paths.sdk.queries == paths.framework.queries == [query()]
    assert paths.sdk.deadlines == [deadline]
    assert names(found) == sorted(BY_COSINE)


async def test_the_first_path_leaves_the_second_one_half_of_the_time(paths: Paths) -> None:
    """One cap for both: a path that never answers can't use all of it up."""
    deadline = Deadline.after(60_000)
    await paths.search(deadline=deadline)
    (given,) = paths.framework.deadlines
    assert 20 < deadline.at - given.at < 40


async def test_named_modes_do_not_fall_back(paths: Paths) -> None:
    """The whole time is theirs, and so is the error."""
    paths.framework.error = VectorStoreUnavailable("no such collection")
    with pytest.raises(VectorStoreUnavailable, match="no such collection"):
        await paths.search(Mode.VECTORSTORE)
    assert paths.sdk.queries == []
    paths.framework.error, deadline = None, soon()
    await paths.search(Mode.VECTORSTORE, deadline=deadline)
    assert paths.framework.deadlines[-1] == deadline


@pytest.mark.parametrize(
    "error",
    [UnscopedAccess(), InvalidField(), EmbeddingSpaceMismatch(), InvariantViolated()],
    ids=lambda e: e.code,
)
async def test_an_error_of_scope_or_filter_never_falls_back(paths: Paths, error: GatewayError) -> None:
    """A second try would hide a defect, or ask what must not be asked."""
    paths.framework.error = error
    with pytest.raises(type(error)):
        await paths.search()
    assert paths.sdk.queries == []


async def test_when_both_paths_fail_the_search_fails(paths: Paths) -> None:
    """Half a search would be a silent loss."""
    paths.framework.error = paths.sdk.error = VectorStoreUnavailable()
    with pytest.raises(VectorStoreUnavailable):
        await paths.search()


async def test_a_path_that_failed_rests(paths: Paths) -> None:
    """For some seconds no question pays for it; then it is tried again."""
    now = 100.0
    route = DenseRoute(paths.sdk, paths.framework, rest_s=5, clock=lambda: now)

    async def search() -> Served:
        return await route.search(Mode.AUTO, query(), EAST, 10, soon())

    paths.framework.error = VectorStoreUnavailable()
    assert (await search()).fallback == "vector_store_unavailable"
    paths.framework.error, now = None, 104.9
    assert (await search()).fallback == "vector_store_unavailable"
    assert len(paths.framework.queries) == 1
    now = 105.1
    assert (await search()).by is Mode.VECTORSTORE


async def test_a_wrong_collection_falls_back_in_auto_and_fails_by_name(paths: Paths) -> None:
    """Never an empty result: nothing found and nothing there are told apart."""
    lost = Misnamed(paths.vectors)
    found = await paths.search(vectorstore=lost)
    assert (found.served_by, found.fallback) == (Mode.SDK, "vector_store_unavailable")
    assert names(found) == sorted(BY_COSINE)
    with pytest.raises(VectorStoreUnavailable):
        await paths.search(Mode.VECTORSTORE, vectorstore=lost)


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.VECTORSTORE])
async def test_a_framework_that_forgets_the_filter_shows_nothing(paths: Paths, mode: Mode) -> None:
    """The second lock counts its rows as foreign, whoever brought them."""
    strays = tuple(
        Hit(chunk(name, **{name: changed}), 1.0)
        for name, changed in (
            ("tenant_id", "other"),
            ("kb_id", "other"),
            ("kb_revision", "other"),
            ("embedding_space_id", "other"),
            ("acl_class", 2),
            ("valid_from", 2000),
            ("valid_until", 1000),
        )
    )
    found = await paths.search(mode, vectorstore=Leaking(strays))
    assert (names(found), found.foreign) == (["opposite"], len(strays))


@pytest.mark.parametrize("mode", list(Mode))
async def test_scores_are_distances_in_every_mode(paths: Paths, mode: Mode) -> None:
    """Nearest is 0, a right angle 2, the opposite 4; what ranked a passage is named beside it."""
    found = await paths.search(mode)
    scores = {c.chunk.chunk_id: c.score for c in found.candidates}
    assert scores == pytest.approx({name: distance for name, (_, distance) in BY_COSINE.items()})
    assert {c.score_label for c in found.candidates} == {"rrf"}
    assert {c.chunk.chunk_id: c.hit_reason for c in found.candidates} == {
        "same": "dense #1",
        "between": "dense #2",
        "orthogonal": "dense #3",
        "opposite": "dense #4, bm25 #1",
    }


@pytest.mark.parametrize("mode", list(Mode))
async def test_without_a_dense_hit_there_is_no_score(paths: Paths, mode: Mode) -> None:
    """A passage found by its words alone has a similarity for the gate, and no distance of the route."""
    fusion = FusionSettings(depth=1, k=60, dense_weight=1.0, lexical_weight=1.0)
    retriever = Retriever(Embedders(FixedEmbedder()), paths.vectors, fusion, vectorstore=paths.vectors)
    found = await retriever.search(query(), "common?", EAST, soon(), mode=mode)
    worded = next(c for c in found.candidates if c.chunk.chunk_id == "opposite")
    assert (worded.score, worded.dense, worded.similarity) == (None, False, -1.0)


@pytest.mark.parametrize(
    ("metric", "number", "similarity"),
    [
        ("COSINE", 1.0, 1.0),
        ("COSINE", 0.0, 0.0),
        ("COSINE", -1.0, -1.0),
        ("COSINE", 1.0000002, 1.0),
        ("IP", 0.6, 0.6),
        ("L2", 0.0, 1.0),
        ("L2", 2.0, 0.0),
        ("L2", 4.0, -1.0),
        ("l2", 0.8, 0.6),
    ],
)
def test_what_comes_back_is_read_by_its_metric(metric: str, number: float, similarity: float) -> None:
    """The same number is near as a distance and far as a similarity."""
    assert math.isclose(similarity_of(metric, number), similarity, abs_tol=1e-12)


def test_a_number_of_an_unknown_metric_is_not_guessed() -> None:
    """Better no path than one that turns the order round."""
    with pytest.raises(VectorStoreUnavailable):
        similarity_of("JACCARD", 0.5)


def test_every_path_and_every_fallback_has_a_series_from_the_start() -> None:
    """A counter that appears with its first event shows no increase."""
    metrics = Metrics(close_reasons=(), statuses=())
    reasons = (NOT_INSTALLED, EMBEDDED_STORE, VectorStoreUnavailable.code, DeadlineExceeded.code)
    before = metrics.exposition().decode()
    for mode in (Mode.SDK, Mode.VECTORSTORE):
        assert f'gateway_retrieval_paths_total{{path="{mode}"}} 0.0' in before
    for reason in reasons:
        assert f'gateway_retrieval_fallbacks_total{{reason="{reason}"}} 0.0' in before
        metrics.retrieval_path(Mode.SDK, reason)
    assert 'gateway_retrieval_paths_total{path="sdk"} 4.0' in metrics.exposition().decode()
