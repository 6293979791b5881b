"""Answers across processes, over a real Redis: made once, told by all, gone for all."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest_asyncio

from gateway.adapters.memory.models import Gate, ScriptedModel
from gateway.adapters.redis.answers import RedisAnswers
from gateway.answer.cache import AnswerStore
from gateway.bootstrap.parts import PartsOpener
from gateway.settings import Settings
from tests.harness.serving import serving_world
from tests.harness.wire import ask, request
from tests.harness.world import World, twins
from tests.integration.cache_world import QUESTION, TEXTS, Installation, Told

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer
    from tests.harness.redis_server import RedisServer

PIECES = ["The limit ", "is ", "42 ", "megabytes ", "[1]."]
WHOLE = "".join(PIECES)
PATIENCE_S = 20
_BYTES = 1024 * 1024


class Noted:
    """An AnswerStore that tells when a claim was refused; ``first`` is done right before the first one."""

    def __init__(self, store: AnswerStore, first: Callable[[str], Any] | None = None) -> None:
        self._store = store
        self._first = first
        self.refused = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        first, self._first = self._first, None
        if first is not None:
            await first(digest)
        claimed = await self._store.claim(digest, owner, ttl_s)
        if not claimed:
            self.refused.set()
        return claimed


@pytest_asyncio.fixture
async def store(redis: "RedisServer") -> AsyncIterator[RedisAnswers]:
    """Empty."""
    answers = RedisAnswers(redis.fresh(), _BYTES, 5000)
    yield answers
    await answers.aclose()


async def test_two_processes_that_are_asked_the_same_at_once_make_one_answer(store: RedisAnswers) -> None:
    """The second one calls no model, and is counted as a follower of the first."""
    gate = Gate()
    installation, noted = Installation(answers=store), Noted(store)
    settings = {"answer_cache_cap_ms": 5000}
    told: dict[str, Told] = {}
    async with (
        installation.desk(name="a", model=ScriptedModel(PIECES, hold={2: gate}), **settings) as one,
        installation.desk(name="b", answers=noted, **settings) as two,
    ):
        await one.world.learn(TEXTS)

        async def asking(name: str, desk: Any) -> None:
            told[name] = await desk.ask()

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asking, "a", one)
                await gate.reached.wait()
                tasks.start_soon(asking, "b", two)
                await noted.refused.wait()
                gate.release.set()
        assert (one.world.model.called, two.world.model.called) == (1, 0)
        members = [two.counted("gateway_flight_members_total", role=role) for role in ("leader", "follower")]
    assert members == [0, 1]
    assert [told[name].text for name in "ab"] == [WHOLE, WHOLE]
    assert told["b"].meta.sources == told["a"].meta.sources
    assert told["b"].meta.request_id != told["a"].meta.request_id


async def test_a_process_that_died_while_it_made_an_answer_is_not_waited_for_longer_than_its_claim(
    store: RedisAnswers,
) -> None:
    """Then the one that waits makes it, within its own deadline."""

    async def dies(digest: str) -> None:
        assert await store.claim(digest, "dead", 0.3)

    noted = Noted(store, dies)
    async with Installation(answers=noted).desk(name="b", answer_cache_cap_ms=5000) as desk:
        await desk.world.learn(TEXTS)
        with anyio.fail_after(PATIENCE_S):
            told = await desk.ask()
        assert noted.refused.is_set()
        assert desk.world.model.called == 1
    assert told.done.reasons == ()


@asynccontextmanager
async def process(name: str, database: str, store: AnswerStore, ground: Any) -> AsyncIterator[Any]:
    """A gateway of its own, with a connection of its own to the database, and its port."""
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {"database_url": database, "catalog_cap_ms": 10_000}
        catalog = await PartsOpener(Settings(**settings), stack).catalog()
        world = World(
            ground=replace(ground, catalog=catalog),
            answers=store,
            name=name,
            answer_cache_ttl_s=600,
            answer_cache_cap_ms=5000,
            answer_sharing=True,
        )
        yield world, await stack.enter_async_context(serving_world(world))


async def test_a_revoked_answer_is_read_by_no_process_any_more(
    store: RedisAnswers, postgres: "PostgresServer"
) -> None:
    """Revoked at one of two over PostgreSQL, read from Redis at both, before anything is cleaned up."""
    database, ground = postgres.migrated(), twins(Settings())
    with anyio.fail_after(2 * PATIENCE_S):
        async with process("a", database, store, ground) as (one, first):
            task = await one.learn(TEXTS)
            document_id = task.documents[0].document_id
            async with process("b", database, store, ground) as (two, second):
                _, made = await ask(first, one.token(), QUESTION)
                _, kept = await ask(second, two.token(subject="bob"), QUESTION)
                assert [events[0].data["cached"] for events in (made, kept)] == [False, True]
                body = f'{{"kind": "document", "id": "{document_id}", "reason": "leaked"}}'.encode()
                head, _ = await request(
                    first,
                    "POST",
                    "/v1/revocations",
                    token=one.token(subject="olga", scopes=("revoke",)),
                    body=body,
                    headers={"Content-Type": "application/json"},
                )
                assert head.status == 201
                assert_nothing_of(document_id, await ask(second, two.token(), QUESTION))
                assert_nothing_of(document_id, await ask(first, one.token(), QUESTION))
                assert (one.model.called, two.model.called) == (1, 0)


def assert_nothing_of(document_id: str, answered: Any) -> None:
    head, (meta, done) = answered
    assert head.status == 200
    assert meta.data["sources"] == []
    assert done.data["status"] == "REFUSED_NO_EVIDENCE"
    assert document_id not in repr((meta, done))
