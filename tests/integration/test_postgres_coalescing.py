"""Shared reads: how many queries answer how many callers, and that none answers with the past."""

import asyncio
from collections.abc import Mapping

import anyio
import pytest

from gateway.adapters.sql.coalesce import Coalescer
from gateway.errors import CatalogUnavailable, InvalidField

_PATIENCE_S = 30.0


class Source:
    """Answers each key with the number of the query; a query ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.started = asyncio.Semaphore(0)
        self.go_on = asyncio.Semaphore(0)

    async def query(self, keys: tuple[str, ...]) -> Mapping[str, int]:
        self.asked.append(keys)
        number = len(self.asked)
        self.started.release()
        await self.go_on.acquire()
        if "broken" in keys:
            raise InvalidField("broken")
        if "down" in keys:
            raise CatalogUnavailable("down")
        return dict.fromkeys(keys, number)

    def let(self, queries: int) -> None:
        for _ in range(queries):
            self.go_on.release()


async def test_callers_of_one_moment_share_a_query() -> None:
    """One statement for all of their keys."""
    source = Source()
    shared = Coalescer(source.query)
    source.let(1)
    with anyio.fail_after(_PATIENCE_S):
        answers = await asyncio.gather(*(shared.ask(key) for key in ("a", "b", "a", "a", "b")))
    assert answers == [1] * 5
    assert source.asked == [("a", "b")]


async def test_nobody_is_answered_by_a_query_that_started_before_he_asked() -> None:
    """Even when it is for the same key and ends later."""
    source = Source()
    shared = Coalescer(source.query)
    with anyio.fail_after(_PATIENCE_S):
        early = asyncio.ensure_future(shared.ask("a"))
        await source.started.acquire()
        late = asyncio.ensure_future(shared.ask("a"))
        await source.started.acquire()
        source.let(2)
        assert (await early, await late) == (1, 2)


async def test_cancelling_a_caller_disturbs_no_other() -> None:
    """Neither those who share his key nor those who share his query; and all may go."""
    source = Source()
    shared = Coalescer(source.query)
    with anyio.fail_after(_PATIENCE_S):
        callers = [asyncio.ensure_future(shared.ask(key)) for key in ("a", "a", "b")]
        await source.started.acquire()
        callers[0].cancel()
        await asyncio.wait({callers[0]})
        source.let(1)
        assert await asyncio.gather(*callers[1:]) == [1, 1]
        lonely = asyncio.ensure_future(shared.ask("down"))
        await source.started.acquire()
        lonely.cancel()
        await asyncio.wait({lonely})
        source.let(2)
        assert await shared.ask("a") == 3


async def test_a_failure_is_told_to_each_caller() -> None:
    """As an error of his own; the next query is asked as if nothing had been."""
    source = Source()
    shared = Coalescer(source.query)
    source.let(2)
    with anyio.fail_after(_PATIENCE_S):
        errors = await asyncio.gather(*(shared.ask("down") for _ in range(3)), return_exceptions=True)
        assert await shared.ask("a") == 2
    assert {type(error) for error in errors} == {CatalogUnavailable}
    assert len({id(error) for error in errors}) == 3


async def test_a_key_that_cannot_be_asked_for_fails_its_own_callers() -> None:
    """The others of its query are asked for again, each alone."""
    source = Source()
    shared = Coalescer(source.query)
    source.let(4)
    with anyio.fail_after(_PATIENCE_S):
        answers = await asyncio.gather(
            *(shared.ask(key) for key in ("a", "broken", "b")), return_exceptions=True
        )
    assert [type(answer) for answer in answers] == [int, InvalidField, int]
    assert source.asked == [("a", "broken", "b"), ("a",), ("broken",), ("b",)]


async def test_many_keys_are_asked_in_bounded_queries() -> None:
    """The first to come are asked for first."""
    source = Source()
    shared = Coalescer(source.query)
    source.let(10)
    keys = [f"{number}" for number in range(600)]
    with anyio.fail_after(_PATIENCE_S):
        await asyncio.gather(*(shared.ask(key) for key in keys))
    assert [key for asked in source.asked for key in asked] == keys
    assert max(len(asked) for asked in source.asked) == 256


async def test_a_query_that_breaks_leaves_nobody_waiting() -> None:
    """A defect of ours is reported as such by the loop, and to its callers as unavailable."""
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    async def broken(keys: tuple[str, ...]) -> Mapping[str, int]:
        raise ZeroDivisionError

    shared = Coalescer(broken)
    with anyio.fail_after(_PATIENCE_S), pytest.raises(CatalogUnavailable):
        await shared.ask("a")
