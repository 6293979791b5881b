"""The reads of the index check: the production ones, timed one by one and eight at once, and checked."""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from pymilvus import MilvusClient

from gateway.adapters.milvus.filter import scope_filter
from gateway.context import Deadline
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import Hit
from loadtest.index_data import CASES, Case, Corpus, Question
from loadtest.index_sides import Side
from loadtest.index_truth import ExactWords, Truth, dense_truth

DENSE, WORDS = "dense", "words"
CALLERS = (1, 8)
#: as a question asks for (``candidates`` of the settings)
DEPTH = 24
#: long enough that a slow read is timed and not cut off
_PATIENCE_MS = 20_000
_EFS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class Asked:
    """One case: its questions with what each route should find."""

    case: Case
    query: ScopedQuery
    permitted: int
    questions: list[Question]
    truths: dict[str, list[Truth]]

    @classmethod
    def of(cls, corpus: Corpus, case: Case, queries: int, word_queries: int) -> "Asked":
        permitted = corpus.permitted(case)
        questions = corpus.questions(case, queries)
        exact = ExactWords(corpus, permitted)
        truths = {
            DENSE: dense_truth(corpus, permitted, questions),
            WORDS: [exact.truth(question) for question in questions[:word_queries]],
        }
        return cls(case, corpus.query(case), int(permitted.sum()), questions, truths)


@dataclass(frozen=True, slots=True)
class Read:
    """One read: how long it took, and its share of the exact best ten."""

    ms: float
    recall: float


async def _read(side: Side, asked: Asked, route: str, number: int) -> Read:
    question, deadline = asked.questions[number], Deadline.after(_PATIENCE_MS)
    vector = tuple(question.vector.tolist())
    began = time.perf_counter()
    hits: list[Hit]
    if route == DENSE:
        hits = await side.store.dense(asked.query, vector, DEPTH, deadline)
    else:
        hits = await side.store.lexical(asked.query, question.terms, DEPTH, deadline)
    ms = (time.perf_counter() - began) * 1000
    return Read(ms, asked.truths[route][number].recall([hit.chunk.chunk_id for hit in hits]))


async def series(side: Side, asked: Asked, route: str, callers: int) -> list[Read]:
    """Every question of one case once, by so many callers that each wait for their answer."""
    waiting = iter(range(len(asked.truths[route])))
    found: list[Read | None] = [None] * len(asked.truths[route])

    async def caller() -> None:
        for number in waiting:
            found[number] = await _read(side, asked, route, number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    return [read for read in found if read is not None]


async def warm_up(side: Side, cases: Sequence[Asked], reads: int) -> None:
    for asked in cases:
        for route in (DENSE, WORDS):
            for number in range(min(reads, len(asked.truths[route]))):
                await _read(side, asked, route, number)


async def one_round(
    side: Side, cases: Sequence[Asked], number: int, at_once: Sequence[int] = CALLERS
) -> list[dict[str, Any]]:
    """All cases, routes and numbers of callers by turns; the order of cases changes from round to round.

    CPU is user and system time a read, of this process and of the store's (0 when somebody else runs it).
    """
    turned = [*cases[number % len(cases) :], *cases[: number % len(cases)]]
    found = []
    for callers in at_once:
        for asked in turned:
            for route in (route for route in (DENSE, WORDS) if asked.truths[route]):
                began, used = time.perf_counter(), (time.process_time(), side.cpu_s())
                reads = await series(side, asked, route, callers)
                took_s, now_used = time.perf_counter() - began, (time.process_time(), side.cpu_s())
                own, store = ((after - before) * 1000 for before, after in zip(used, now_used, strict=True))
                found.append(
                    {
                        "case": asked.case.name,
                        "route": route,
                        "callers": callers,
                        "reads_per_s": round(len(reads) / took_s, 1),
                        "own_cpu_ms": round(own / len(reads), 2),
                        "store_cpu_ms": round(store / len(reads), 2),
                        "ms": [round(read.ms, 1) for read in reads],
                        "recall": [round(read.recall, 2) for read in reads],
                    }
                )
    return found


async def compared_efs(side: Side, asked: Asked) -> list[dict[str, Any]]:
    """HNSW's ``ef`` by turns on the same collection under the same filter, through a bare client."""
    return await anyio.to_thread.run_sync(_compare_efs, side, asked)


def _compare_efs(side: Side, asked: Asked) -> list[dict[str, Any]]:
    found: dict[int, list[Read]] = {ef: [] for ef in _EFS}
    client = MilvusClient(side.uri, dedicated=True)
    try:
        for question, truth in zip(asked.questions, asked.truths[DENSE], strict=True):
            for ef in _EFS:
                began = time.perf_counter()
                rows = client.search(
                    asked.query.release.collection,
                    data=[question.vector.tolist()],
                    anns_field="vector",
                    filter=scope_filter(asked.query),
                    limit=DEPTH,
                    output_fields=["chunk_id"],
                    search_params={"metric_type": "COSINE", "params": {"ef": ef}},
                    consistency_level="Bounded",
                )[0]
                ms = (time.perf_counter() - began) * 1000
                recall = truth.recall([row["entity"]["chunk_id"] for row in rows])
                found[ef].append(Read(ms, recall))
    finally:
        client.close()
    return [
        {
            "case": asked.case.name,
            "ef": ef,
            "ms": [round(read.ms, 1) for read in reads],
            "recall": [round(read.recall, 2) for read in reads],
        }
        for ef, reads in found.items()
    ]


async def measured(
    side: Side,
    corpus: Corpus,
    *,
    queries: int,
    word_queries: int,
    rounds: int,
    warm: int,
    callers: Sequence[int] = CALLERS,
    efs: bool,
) -> dict[str, Any]:
    """Every figure of one side, raw. Without ``word_queries`` it is asked by vector alone."""
    cases = [Asked.of(corpus, case, queries, word_queries) for case in CASES]
    began = time.monotonic()
    await warm_up(side, cases, warm)
    warming_s = time.monotonic() - began
    found = []
    for number in range(rounds):
        found.append(await one_round(side, cases, number, callers))
        print(f"{side.name}: round {number + 1} of {rounds} read", file=sys.stderr)
    return {
        "server_version": await side.store.server_version(),
        "cases": {
            asked.case.name: {
                "permitted": asked.permitted,
                "kinds": [question.kind for question in asked.questions],
            }
            for asked in cases
        },
        "warming_s": round(warming_s, 1),
        "reading_s": round(time.monotonic() - began - warming_s, 1),
        "rounds": found,
        "efs": [row for asked in cases[:3] for row in await compared_efs(side, asked)] if efs else [],
        "usage": side.usage(),
    }
