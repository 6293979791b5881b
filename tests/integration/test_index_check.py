"""The index check, small: its exact answers are exact, and a run finds every row on a real Milvus Lite."""

from pathlib import Path

import numpy as np
import pytest

from gateway.adapters.memory.vectors import MemoryVectors
from loadtest.index_check import checked, command, options
from loadtest.index_data import CASES, Corpus
from loadtest.index_report import summary
from loadtest.index_sides import lite_side
from loadtest.index_truth import TOP, ExactWords, Truth, dense_truth
from tests.contract.vector_world import soon


async def test_exact_answers_are_those_of_the_exact_store() -> None:
    """Both ways to search, for every caller: the in-memory store and numpy agree, so a full recall is 1."""
    corpus, store = Corpus(400, 16), MemoryVectors()
    await store.prepare(corpus.space)
    for revision, numbers in corpus.revisions():
        await store.write(corpus.space, revision, corpus.rows(numbers))
    for case in CASES:
        query, permitted = corpus.query(case), corpus.permitted(case)
        questions = corpus.questions(case, 8)
        exact = ExactWords(corpus, permitted)
        for question, truth in zip(questions, dense_truth(corpus, permitted, questions), strict=True):
            near = await store.dense(query, tuple(question.vector.tolist()), TOP, soon())
            assert len(near) == truth.best
            assert truth.recall([hit.chunk.chunk_id for hit in near]) == 1
            worded = await store.lexical(query, question.terms, TOP, soon())
            assert len(worded) == exact.truth(question).best
            assert exact.truth(question).recall([hit.chunk.chunk_id for hit in worded]) == 1


def test_recall_counts_the_best_and_nothing_else() -> None:
    """A hidden row, a row too far down, one given twice and one that is missing count for nothing."""
    scores = np.arange(20, dtype=np.float64)
    scores[19] = -np.inf
    truth = Truth.of(scores)
    best = [f"c{number}" for number in range(9, 19)]
    assert truth.recall(best) == 1
    assert truth.recall([*best[:8], "c8", "c19"]) == 0.8
    assert truth.recall([best[0]] * TOP) == 0.1
    assert truth.recall([]) == 0
    assert Truth.of(np.full(3, -np.inf)).recall([]) == 1


def test_a_share_of_the_rows_is_permitted_and_the_same_seed_gives_the_same_rows() -> None:
    """50 %, 1 % and 0.01 %, as the cases say."""
    one, other = Corpus(10_000, 4), Corpus(10_000, 4)
    shares = [one.permitted(case).sum() / one.size for case in CASES]
    assert np.allclose(shares, [0.5, 0.01, 0.01, 0.01, 0.0001, 0.0001], rtol=0.02)
    assert np.array_equal(one.vectors, other.vectors)
    assert np.array_equal(one.words, other.words)


def test_the_command_of_the_figures_names_no_place_of_this_machine() -> None:
    """It is printed in the docs."""
    given = ["--rows", "10", "--json", "/home/me/f.json", "--write-docs=docs", "--callers", "1", "8"]
    assert command(given) == "python -m loadtest.index_check --rows 10 --callers 1 8"


@pytest.mark.soak
async def test_a_small_run_finds_every_row_on_lite(tmp_path: Path) -> None:
    """Written, read by one and by eight callers, and summed up; nothing is said about time."""
    chosen = options(["--dimension", "16", "--queries", "16", "--rounds", "1", "--warm-up", "1"])
    async with lite_side(tmp_path / "lite") as side:
        found = await checked(side, 150, chosen)
        assert found["usage"].keys() == {"rss_mb", "disk_mb"}
    assert found["written"]["rows"] == sum(len(numbers) for _, numbers in Corpus(150, 16).revisions())
    dense = [one for one in found["summary"] if one["route"] == "dense"]
    assert len(dense) == len(CASES) * 2
    assert {one["recall"] for one in dense} == {1.0}
    assert summary(found) == found["summary"]
