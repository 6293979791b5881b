"""Questions that go to the vector store together: with whom, with whom never, and who hurts whom."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import anyio
import anyio.lowlevel
import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymilvus import AsyncMilvusClient, MilvusClient, MilvusException
from pymilvus.exceptions import ErrorCode

from gateway.adapters.milvus.batches import Batches
from gateway.adapters.milvus.client import Connection, Endpoint
from gateway.adapters.milvus.filter import scope_filter
from gateway.adapters.milvus.layout import LITE, SERVER
from gateway.adapters.milvus.reading import Reading
from gateway.adapters.milvus.search import Rows, Search
from gateway.context import Deadline
from gateway.errors import InvariantViolated, VectorStoreUnavailable
from gateway.retrieval.query import ScopedQuery
from tests.contract.vector_world import NOW, query, soon

PATIENCE_S = 10


class Vanished(grpc.RpcError):
    """As grpc tells of a server that is gone."""

    def __init__(self, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


class Reader:
    """A reader's twin: a hit says what was asked in which call. ``held`` calls wait for ``go``."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.under_way = 0
        self.cancelled = 0
        self.held = False
        self.go = asyncio.Event()
        self.fails: Callable[[list[object]], BaseException | None] = lambda _: None
        self.short = False

    @property
    def asked(self) -> list[list[object]]:
        """The questions of each call."""
        return [call["data"] for call in self.calls]

    def hold(self) -> None:
        self.held, self.go = True, asyncio.Event()

    def release(self) -> None:
        self.held = False
        self.go.set()

    async def search(self, **call: Any) -> list[Rows]:
        self.calls.append(call)
        self.under_way += 1
        try:
            if self.held:
                await self.go.wait()
            await anyio.lowlevel.checkpoint()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        error = self.fails(call["data"])
        if error is not None:
            raise error
        found = [[{"entity": {**call, "data": question}, "distance": 1.0}] for question in call["data"]]
        return found[1:] if self.short else found


class Bench:
    """Batches over the twin; ``ask`` is a task."""

    def __init__(self, most: int = 16, at_once: int = 1) -> None:
        self.reader = Reader()
        self.connection = connection(self.reader, at_once)
        self.sizes: list[int] = []
        self.batches = Batches(most, self.sizes.append)
        self.search = Search(
            connection=self.connection,
            collection="c",
            partition="p",
            anns_field="vector",
            metric="COSINE",
            expression="a filter",
            fields=("row_id",),
            limit=8,
            params=(("ef", 8),),
            consistency="Bounded",
        )

    def ask(
        self, *questions: object, search: Search | None = None, deadline: Deadline | None = None
    ) -> list["asyncio.Task[Rows]"]:
        return [
            asyncio.create_task(self.batches.ask(search or self.search, question, deadline or soon()))
            for question in questions
        ]

    async def busy(self, question: object = "first") -> "asyncio.Task[Rows]":
        """A call under way, which ends when the reader is released."""
        self.reader.hold()
        [task] = self.ask(question)
        await anyio.wait_all_tasks_blocked()
        assert self.reader.under_way == 1
        return task


def connection(reader: Reader, at_once: int = 1) -> Connection:
    """One that is open, to the twin."""
    one = Connection(Endpoint("http://twin"), cast(AsyncMilvusClient, reader), cast(MilvusClient, None))
    one.layout = replace(LITE, searches_at_once=at_once)
    return one


async def told(tasks: Sequence["asyncio.Task[Rows]"]) -> list[object]:
    """The question that each of them got hits for."""
    with anyio.fail_after(PATIENCE_S):
        return [rows[0]["entity"]["data"] for rows in await asyncio.gather(*tasks)]


async def failed(task: "asyncio.Task[Rows]", kind: type[BaseException]) -> BaseException:
    with anyio.fail_after(PATIENCE_S), pytest.raises(kind) as raised:
        await task
    return raised.value


async def test_a_question_alone_is_a_call_alone() -> None:
    """With everything that the search says, and its own time."""
    bench = Bench()
    assert await told(bench.ask("one", deadline=Deadline.after(5_000))) == ["one"]
    [call] = bench.reader.calls
    assert 4 < call.pop("timeout") <= 5
    assert call == {
        "data": ["one"],
        "collection_name": "c",
        "partition_names": ["p"],
        "anns_field": "vector",
        "filter": "a filter",
        "limit": 8,
        "output_fields": ["row_id"],
        "search_params": {"metric_type": "COSINE", "params": {"ef": 8}},
        "consistency_level": "Bounded",
        "retry_on_rate_limit": False,
    }


async def test_what_is_asked_at_the_same_moment_is_one_call() -> None:
    """Each gets its own hits."""
    bench = Bench()
    assert await told(bench.ask("one", "two", "three")) == ["one", "two", "three"]
    assert bench.reader.asked == [["one", "two", "three"]]
    assert bench.sizes == [3]


async def test_what_is_asked_while_a_call_is_under_way_goes_with_the_next_one() -> None:
    """Nobody joins a call that has begun, not even with the same question, and no hits are kept."""
    bench = Bench()
    first = await bench.busy()
    later = bench.ask("first", "two")
    await anyio.wait_all_tasks_blocked()
    later += bench.ask("three")
    await anyio.wait_all_tasks_blocked()
    assert bench.reader.asked == [["first"]]
    bench.reader.release()
    assert await told([first, *later]) == ["first", "first", "two", "three"]
    assert bench.reader.asked == [["first"], ["first", "two", "three"]]
    assert await told(bench.ask("first")) == ["first"]
    assert len(bench.reader.asked) == 3


@pytest.mark.parametrize(
    "part",
    [
        {"collection": "d"},
        {"partition": "q"},
        {"partition": None},
        {"anns_field": "bm25"},
        {"metric": "BM25"},
        {"expression": "a filter "},
        {"fields": ("row_id", "vector")},
        {"limit": 9},
        {"params": (("ef", 9),)},
        {"consistency": None},
    ],
    ids=lambda part: " ".join(f"{name} {value}" for name, value in part.items()),
)
async def test_questions_that_differ_in_one_part_share_no_call(part: dict[str, Any]) -> None:
    """At the same moment, and neither waits for the other."""
    bench = Bench()
    bench.reader.hold()
    other = replace(bench.search, **part)
    tasks = [*bench.ask("mine"), *bench.ask("another's", search=other), *bench.ask("mine too")]
    await anyio.wait_all_tasks_blocked()
    assert bench.reader.asked == [["mine", "mine too"], ["another's"]]
    bench.reader.release()
    assert await told(tasks) == ["mine", "another's", "mine too"]


async def test_questions_to_two_servers_share_no_call() -> None:
    """Nor do those before and after the server was started again: each connection has its own."""
    bench, other = Bench(), Reader()
    moved = replace(bench.search, connection=connection(other))
    assert await told([*bench.ask("one"), *bench.ask("two", search=moved)]) == ["one", "two"]
    assert (bench.reader.asked, other.asked) == ([["one"]], [["two"]])


_CHANGES: list[dict[str, Any]] = [
    {"tenant": "other"},
    {"kb": "other"},
    {"revision": "r2"},
    {"classes": (1, 2)},
    {"at": NOW + 1},
    {"category": "faq"},
    {"category": ""},
]
_scopes = st.sampled_from([query(), *(query(**change) for change in _CHANGES)])
_asking = st.tuples(_scopes, st.sampled_from(["vector", "bm25"]), st.integers(0, 3), st.booleans())


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(_asking, min_size=1, max_size=20), st.integers(1, 3), st.integers(2, 5), st.booleans())
async def test_no_mix_of_callers_lets_one_be_asked_under_the_filter_of_another(
    asking: list[tuple[ScopedQuery, str, int, bool]], at_once: int, most: int, partitions: bool
) -> None:
    """Whoever asks and leaves when: hits come from a call with one's own whole filter and question."""
    reader = Reader()
    one = connection(reader)
    one.layout = replace(LITE if partitions else SERVER, searches_at_once=at_once)
    batches = Batches(most)

    async def ask(number: int, asked: ScopedQuery, field: str) -> None:
        expression = scope_filter(asked)
        reading = Reading(one, asked.release, soon(), batches)
        [hit] = await reading.search(number, field, expression, ["row_id"], 5)
        call = hit["entity"]
        assert (call["data"], call["filter"], call["anns_field"]) == (number, expression, field)
        assert call.get("partition_names") == reading.call().get("partition_names")

    tasks = []
    with anyio.fail_after(PATIENCE_S):
        for number, (asked, field, pause, leaves) in enumerate(asking):
            tasks.append(asyncio.create_task(ask(number, asked, field)))
            for _ in range(pause):
                await anyio.lowlevel.checkpoint()
            if leaves:
                tasks[number // 2].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ended)
    assert all(1 <= len(questions) <= most for questions in reader.asked)
    assert reader.under_way == 0


async def test_a_call_has_a_most_of_questions_and_of_rows() -> None:
    """What is over goes with the next one; large reads gain nothing by company."""
    bench = Bench(most=3)
    numbers = list(range(7))
    assert await told(bench.ask(*numbers)) == numbers
    assert bench.reader.asked == [[0, 1, 2], [3, 4, 5], [6]]
    bench.reader.calls.clear()
    assert await told(bench.ask(1, 2, 3, search=replace(bench.search, limit=200))) == [1, 2, 3]
    assert bench.reader.asked == [[1, 2], [3]]
    bench.reader.calls.clear()
    assert await told(bench.ask(1, 2, search=replace(bench.search, limit=16_384))) == [1, 2]
    assert bench.reader.asked == [[1], [2]]


async def test_so_many_calls_of_a_search_are_under_way_and_no_more() -> None:
    """The others wait, and go together."""
    bench = Bench(most=2, at_once=2)
    bench.reader.hold()
    tasks = bench.ask(*range(6))
    await anyio.wait_all_tasks_blocked()
    assert bench.reader.asked == [[0, 1], [2, 3]]
    bench.reader.release()
    assert await told(tasks) == list(range(6))


async def test_with_one_question_a_call_nobody_waits_for_a_turn() -> None:
    """As if there were no batches."""
    bench = Bench(most=1)
    bench.reader.hold()
    tasks = bench.ask(1, 2, 3)
    await anyio.wait_all_tasks_blocked()
    assert bench.reader.under_way == 3
    bench.reader.release()
    assert await told(tasks) == [1, 2, 3]


async def test_who_leaves_a_call_under_way_leaves_it_to_the_others() -> None:
    """Whoever came first; they get their own hits."""
    bench = Bench()
    bench.reader.hold()
    first, second, third = bench.ask(1, 2, 3)
    await anyio.wait_all_tasks_blocked()
    first.cancel()
    await failed(first, asyncio.CancelledError)
    assert (bench.reader.under_way, bench.reader.cancelled) == (1, 0)
    bench.reader.release()
    assert await told([second, third]) == [2, 3]


async def test_a_call_nobody_waits_for_any_more_ends() -> None:
    """On the wire as well, and the next one gets its turn."""
    bench = Bench()
    bench.reader.hold()
    tasks = bench.ask(1, 2)
    await anyio.wait_all_tasks_blocked()
    waiting = bench.ask(3)
    await anyio.wait_all_tasks_blocked()
    for task in tasks:
        task.cancel()
        await failed(task, asyncio.CancelledError)
    bench.reader.release()
    assert await told(waiting) == [3]
    assert bench.reader.cancelled == 1
    assert bench.reader.asked == [[1, 2], [3]]


async def test_who_leaves_before_the_call_is_not_asked_for() -> None:
    """Nor is a call made that nobody waits for; who comes right then has a call of its own."""
    bench = Bench()
    first = await bench.busy()
    gone, stays = bench.ask("gone", "stays")
    await anyio.wait_all_tasks_blocked()
    gone.cancel()
    await failed(gone, asyncio.CancelledError)
    bench.reader.release()
    assert await told([first, stays]) == ["first", "stays"]
    assert bench.reader.asked == [["first"], ["stays"]]
    first = await bench.busy()
    [gone] = bench.ask("gone")
    await anyio.wait_all_tasks_blocked()
    gone.cancel()
    await failed(gone, asyncio.CancelledError)
    late = bench.ask("late")
    bench.reader.release()
    assert await told([first, *late]) == ["first", "late"]
    assert bench.reader.asked[2:] == [["first"], ["late"]]


async def test_a_call_has_the_time_of_its_most_patient_question() -> None:
    """Each waits by its own clock."""
    bench = Bench()
    tasks = [task for ms in (1_000, 9_000, 3_000) for task in bench.ask(ms, deadline=Deadline.after(ms))]
    await told(tasks)
    [call] = bench.reader.calls
    assert 8 < call["timeout"] <= 9


async def test_a_question_that_the_store_refuses_hurts_nobody_else() -> None:
    """Each of its call is asked alone, and it alone fails."""
    bench = Bench()
    refusal = MilvusException(message="a bad vector")
    bench.reader.fails = lambda questions: refusal if "bad" in questions else None
    one, bad, two = bench.ask("one", "bad", "two")
    assert await told([one, two]) == ["one", "two"]
    assert await failed(bad, MilvusException) is refusal
    assert bench.reader.asked == [["one", "bad", "two"], ["one"], ["bad"], ["two"]]


@pytest.mark.parametrize("code", [ErrorCode.RATE_LIMIT, ErrorCode.UNEXPECTED_ERROR])
async def test_a_server_that_has_enough_is_not_asked_more(code: int) -> None:
    """What refuses every call is told to all at once; anything else may be the fault of one question."""
    bench = Bench()
    bench.reader.fails = lambda _: MilvusException(code=code)
    for task in bench.ask(1, 2, 3):
        await failed(task, MilvusException)
    assert len(bench.reader.asked) == (1 if code == ErrorCode.RATE_LIMIT else 4)


async def test_a_question_that_runs_out_of_time_alone_ends_none_of_the_others() -> None:
    """Those who were refused together have times of their own."""
    bench = Bench()
    answers = {"late": Vanished(grpc.StatusCode.DEADLINE_EXCEEDED), "bad": MilvusException()}
    bench.reader.fails = lambda asked: MilvusException() if len(asked) > 1 else answers.get(str(asked[0]))
    late, one, bad = bench.ask("late", "one", "bad")
    assert await told([one]) == ["one"]
    await failed(late, Vanished)
    await failed(bad, MilvusException)


async def test_a_server_that_is_gone_is_not_asked_again() -> None:
    """All of the call learn it at once, also when it goes while they are asked alone."""
    bench = Bench()
    bench.reader.fails = lambda _: Vanished()
    for task in bench.ask(1, 2, 3):
        await failed(task, Vanished)
    assert bench.reader.asked == [[1, 2, 3]]
    bench.reader.calls.clear()
    bench.reader.fails = lambda asked: MilvusException() if len(asked) > 1 else Vanished()
    for task in bench.ask(1, 2, 3):
        await failed(task, Vanished)
    assert bench.reader.asked == [[1, 2, 3], [1]]


async def test_hits_that_can_not_be_told_apart_are_nobodys() -> None:
    """A store that answers fewer questions than it was asked is not believed."""
    bench = Bench()
    bench.reader.short = True
    for task in bench.ask(1, 2):
        await failed(task, InvariantViolated)


async def test_a_store_that_closes_leaves_nobody_waiting() -> None:
    """Neither those of the call under way nor those of the next, nor who comes later."""
    bench = Bench()
    first = await bench.busy()
    waiting = bench.ask(1, 2)
    await anyio.wait_all_tasks_blocked()
    await bench.batches.aclose()
    for task in (first, *waiting):
        await failed(task, VectorStoreUnavailable)
    [late] = bench.ask("late")
    await failed(late, VectorStoreUnavailable)
    assert bench.reader.asked == [["first"]]


async def test_a_closed_connection_is_asked_nothing() -> None:
    """Also where another one has taken its place."""
    bench = Bench()
    bench.connection.closed = True
    [late] = bench.ask("late")
    await failed(late, VectorStoreUnavailable)
    assert bench.reader.asked == []
