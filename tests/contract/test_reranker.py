"""The reranker's contract: over the twin, the bundled linear one and a /rerank endpoint."""

import functools
import math
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from gateway.adapters.embedded.embedder import BundledEmbedder
from gateway.adapters.embedded.rerank import LinearReranker
from gateway.adapters.embedded.weights import bundled_weights
from gateway.adapters.memory.rerank import WordReranker
from gateway.adapters.rerank.endpoint import RerankEndpoint
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.lexicon import TermStatistics
from gateway.retrieval.rerank import Reranker
from gateway.retrieval.terms import terms_of
from loadtest.model_stub import serve_stub
from tests.harness.chunks import sample_chunk

PATIENCE_S = 20
LONG_MS = 60_000
QUESTION = "What is the upload limit?"
ANSWER = "The upload limit is 42 megabytes."
OTHERS = ["Lunch is at noon.", "The garden is closed in winter.", "限额是 42 兆字节 🙂"]
HOSTILE = ["x" * 10_000, '" \\ \n\t\u2028 \x00', "。。。", "?", "- " * 400]


@pytest.fixture(params=["memory", "embedded", "real"])
async def reranker(request: pytest.FixtureRequest) -> AsyncIterator[Reranker]:
    """One of each kind."""
    if request.param == "memory":
        yield WordReranker()
    elif request.param == "embedded":
        yield LinearReranker(bundled(), bundled_weights())
    else:
        async with serve_stub() as stub:
            url = f"{stub.base_url}/rerank"
            remote = RerankEndpoint(url, "judge", None, max_sensitivity=3, connect_cap_ms=5000)
            yield remote
            await remote.aclose()


@functools.cache
def bundled() -> BundledEmbedder:
    """Loading it takes longer than all tests together."""
    return BundledEmbedder.load_now()


def found(*contents: str) -> list[Candidate]:
    """As a search finds them: all alike but for their text."""
    return [
        Candidate(sample_chunk(content, name=f"c{n}"), 0.3, True, 0.01, "rrf", "dense #1")
        for n, content in enumerate(contents)
    ]


async def scores(
    reranker: Reranker, contents: list[str], question: str = QUESTION, deadline_ms: float = LONG_MS
) -> list[float]:
    terms = terms_of(question)
    statistics = TermStatistics(100, dict.fromkeys(terms, 3))
    with anyio.fail_after(PATIENCE_S):
        made = await reranker.scores(question, found(*contents), statistics, Deadline.after(deadline_ms))
    return list(made)


@pytest.mark.parametrize("place", range(4))
async def test_the_passage_that_answers_gets_the_highest_number(reranker: Reranker, place: int) -> None:
    """Wherever it stood."""
    contents = [*OTHERS[:place], ANSWER, *OTHERS[place:]]
    made = await scores(reranker, contents)
    assert made.index(max(made)) == place


@pytest.mark.parametrize("question", [QUESTION, "???", "x" * 4000, "上传限额是多少？"], ids=range(4))
async def test_each_passage_gets_one_finite_number(reranker: Reranker, question: str) -> None:
    """Of whatever text."""
    made = await scores(reranker, [ANSWER, *OTHERS, *HOSTILE], question)
    assert len(made) == 1 + len(OTHERS) + len(HOSTILE)
    assert all(type(number) is float and math.isfinite(number) for number in made)


async def test_the_same_passages_get_the_same_numbers(reranker: Reranker) -> None:
    """An order that is cached has to be the one that would be made."""
    assert await scores(reranker, [ANSWER, *OTHERS]) == await scores(reranker, [ANSWER, *OTHERS])


async def test_no_passages_get_no_numbers(reranker: Reranker) -> None:
    """And need nobody."""
    assert await scores(reranker, []) == []


async def test_a_passed_deadline_is_told_as_the_reranks(reranker: Reranker) -> None:
    """Nothing is looked at any more."""
    with pytest.raises(DeadlineExceeded) as passed:
        await scores(reranker, [ANSWER], deadline_ms=0)
    assert passed.value.stage == "rerank"


async def test_a_cancel_leaves_it_usable(reranker: Reranker) -> None:
    """However far it had come."""
    for turns in range(6):
        async with anyio.create_task_group() as group:
            group.start_soon(scores, reranker, [ANSWER, *OTHERS])
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert len(await scores(reranker, [ANSWER])) == 1


async def test_questions_at_the_same_time_do_not_mix(reranker: Reranker) -> None:
    """Each gets its own passages' numbers."""
    best: dict[int, int] = {}

    async def one(place: int) -> None:
        made = await scores(reranker, [*OTHERS[:place], ANSWER, *OTHERS[place:]])
        best[place] = made.index(max(made))

    async with anyio.create_task_group() as group:
        for place in range(4):
            group.start_soon(one, place)
    assert best == {place: place for place in range(4)}


async def test_it_says_what_it_is_and_what_it_is_cleared_for(reranker: Reranker) -> None:
    """A version that thresholds are fitted for, a sensitivity from public to secret."""
    assert reranker.version
    assert reranker.version.isprintable()
    assert reranker.max_sensitivity in range(4)
