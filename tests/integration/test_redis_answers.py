"""Answers kept in a real Redis: what it may do to them, what others may, and what stands in it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis

from gateway.adapters.aes import AesSeal
from gateway.adapters.redis.answers import RedisAnswers
from gateway.answer.cache import ENTRY_BYTES, AnswerStore, StoreUnavailable
from gateway.answer.reuse.sealed import SealedAnswers
from tests.harness.process import eventually
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.redis_server import RedisServer, redis_server
from tests.integration.cache_world import QUESTION, TEXTS, Desk, Installation, person

PATIENCE_S = 30
PLENTY = 64 * 1024 * 1024
CAP_MS = 10_000
#: where a Redis that hangs is waited for
SHORT_MS = 300
CONNECTIONS = 16
LONG_S = 600.0
TEXT = "The limit is 42 megabytes [1]."
SEAL = AesSeal(bytes(range(32)))
CONTENT = bytes(range(256)) * 100


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that nobody else needs."""
    with redis_server(tmp_path) as server:
        yield server


@asynccontextmanager
async def answers_at(url: str, cap_ms: int = CAP_MS) -> AsyncIterator[RedisAnswers]:
    store = RedisAnswers(url, PLENTY, cap_ms)
    try:
        with anyio.fail_after(PATIENCE_S):
            yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def raw(url: str) -> AsyncIterator[Any]:
    """Somebody else's client, who sees bytes."""
    client: Redis = Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


@contextmanager
def unavailable() -> Iterator[None]:
    with pytest.raises(StoreUnavailable):
        yield


@asynccontextmanager
async def desk_over(store: AnswerStore, cap_ms: int = CAP_MS) -> AsyncIterator[Desk]:
    """Askers of a gateway that knows one document and keeps its answers there."""
    async with Installation(answers=store).desk(answer_cache_cap_ms=cap_ms, answer_sharing=False) as desk:
        await desk.world.learn(TEXTS)
        yield desk


async def made(desk: Desk) -> bool:
    """Asks, and is answered whole and rightly: whether by a call of its own."""
    before = desk.world.model.called
    told = await desk.ask()
    assert (told.failure, told.text) == (None, "The answer is 42 [1].")
    assert [citation.document_id for citation in told.done.citations] == [told.meta.sources[0].document_id]
    assert told.cached == (desk.world.model.called == before)
    return not told.cached


# -- a Redis that is away ---------------------------------------------------------------------------


async def test_answers_go_on_without_redis_and_are_told_again_when_it_is_back(own_redis: RedisServer) -> None:
    """Flushed, hung and killed in the middle: each question is answered by a call of its own meanwhile."""
    with anyio.fail_after(PATIENCE_S):
        async with answers_at(own_redis.url, SHORT_MS) as store, desk_over(store, SHORT_MS) as desk:

            async def told_again() -> bool:
                return not await made(desk)

            assert await made(desk)
            await eventually(told_again)
            async with raw(own_redis.url) as operator:
                await operator.flushall()
            assert await made(desk)
            await eventually(told_again)
            own_redis.pause()
            assert [await made(desk) for _ in range(5)] == [True] * 5
            own_redis.stop()
            assert [await made(desk) for _ in range(5)] == [True] * 5
            assert desk.counted("gateway_cache_total", result="unavailable") >= 10
            assert desk.counted("gateway_cache_writes_total", result="unavailable") >= 10
            own_redis.start()
            await eventually(told_again)


async def test_whatever_a_connection_does_a_step_fails_or_is_right(redis: RedisServer) -> None:
    """Slow, stalled, cut in the middle of a reply or refused: and afterwards all is as before."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, answers_at(redis.through(proxy.port, url), SHORT_MS) as store:

        async def fine() -> bool:
            try:
                return await store.read("one") == CONTENT
            except StoreUnavailable:
                return False

        async def works() -> None:
            await eventually(fine)

        async with answers_at(url) as direct:
            assert await direct.write("one", CONTENT, LONG_S, ["d1"])
        await works()
        for length in (0, 1, 7, 5000, len(CONTENT)):
            proxy.cut_replies_after(length)
            with unavailable():
                await store.read("one")
            proxy.flow()
            await works()
        proxy.delay_s = 1.0
        with unavailable():
            await store.read("one")
        proxy.flow()
        await works()
        proxy.stall()
        with unavailable():
            await store.claim("one", "ann", LONG_S)
        with unavailable():
            await store.write("two", CONTENT, LONG_S, ["d1"])
        proxy.flow()
        await works()
        await proxy.refuse()
        with unavailable():
            await store.forget(["d1"])
        await proxy.accept()
        await works()


async def test_who_leaves_while_redis_hangs_takes_no_connection_along(redis: RedisServer) -> None:
    """As many as there are connections, and those who wait for one."""
    url = redis.fresh()
    async with proxy_to(redis.port) as proxy, answers_at(redis.through(proxy.port, url)) as store:
        assert await store.write("one", CONTENT, LONG_S, ["d1"])
        for _ in range(2):
            proxy.stall()
            leaving = [asyncio.create_task(store.read("one")) for _ in range(60)]
            await eventually(lambda: _all_taken(proxy))
            for task in leaving:
                task.cancel()
            await asyncio.wait(leaving)
            proxy.flow()
            found = await asyncio.gather(*(store.read("one") for _ in range(60)))
            assert found == [CONTENT] * 60


async def _all_taken(proxy: Proxy) -> bool:
    return proxy.connections == CONNECTIONS


async def test_a_full_redis_takes_no_answers_and_tells_those_it_has(redis: RedisServer) -> None:
    """Before it is quite full: the quota is in the same Redis, and nothing is evicted for answers."""
    url = redis.fresh()
    async with answers_at(url) as store, raw(url) as operator:
        assert await store.write("one", CONTENT, LONG_S, ["d1"])
        used = int((await operator.info("memory"))["used_memory"])
        try:
            for most, taken in ((2 * used, True), (used * 5 // 4, False), (1, False), (0, True)):
                await operator.config_set("maxmemory", most)
                assert await store.write("two", CONTENT, LONG_S, ["d1"]) == taken
                assert await store.write("no document", CONTENT, LONG_S, []) == taken
                assert await store.read("one") == CONTENT
                if most != 1:
                    await operator.set("quota", 1)
        finally:
            await operator.config_set("maxmemory", 0)


# -- others who write there -------------------------------------------------------------------------


async def test_no_more_is_read_than_an_entry_may_have(redis: RedisServer) -> None:
    """Whoever writes into Redis doesn't fill a gateway with it."""
    url = redis.fresh()
    async with answers_at(url) as store, raw(url) as other:
        await other.set("qa-gateway:answer:one", bytes(8 * ENTRY_BYTES))
        found = await store.read("one")
    assert found is not None
    assert len(found) == ENTRY_BYTES + 1


@pytest.mark.parametrize("seal", [None, SEAL], ids=["plain", "sealed"])
async def test_a_poisoned_entry_is_a_miss(redis: RedisServer, seal: AesSeal | None) -> None:
    """Other bytes, an entry cut short, that of another question and that of another tenant: each question is
    answered by a call of its own, whose answer takes the entry's place.
    """
    url = redis.fresh()
    async with answers_at(url) as kept, raw(url) as other:
        store = kept if seal is None else SealedAnswers(kept, seal)
        async with desk_over(store) as desk:
            await desk.world.learn(TEXTS, tenant="globex")
            assert await made(desk)
            (mine,) = await other.keys("qa-gateway:answer:*")
            await desk.ask("What is the upload limit of today?")  # about now: never kept
            await desk.ask("Which limit has an upload?")
            await desk.ask(QUESTION, who=person(tenant="globex"))
            entries = {key: await other.get(key) for key in await other.keys("qa-gateway:answer:*")}
            assert len(entries) == 3
            poisons = [entry for key, entry in entries.items() if key != mine]
            whole = entries[mine]
            poisons += [b"rubbish", whole[:-1], whole + b"\0", whole[:50] + b"\0" + whole[51:]]
            for number, poison in enumerate(poisons, 1):
                await other.set(mine, poison, keepttl=True)
                assert await made(desk), number
                assert desk.counted("gateway_cache_total", result="damaged") == number
                assert not await made(desk)


async def test_a_forged_entry_is_told_only_where_there_is_no_seal(redis: RedisServer) -> None:
    """Who may write there can write an answer down; the seal is what tells that it isn't ours."""
    url = redis.fresh()
    async with answers_at(url) as kept, raw(url) as other:
        for store in (kept, SealedAnswers(kept, SEAL)):
            async with desk_over(store) as desk:
                assert await made(desk)
                (mine,) = await other.keys("qa-gateway:answer:*")
                await other.set(mine, (await other.get(mine)).replace(b"is 42", b"is 43"))
                forged = (await desk.ask()).text == "The answer is 43 [1]."
                assert forged == (store is kept)
            await other.flushdb()


# -- what stands in Redis ---------------------------------------------------------------------------


async def test_behind_a_seal_redis_holds_nothing_that_can_be_read(redis: RedisServer) -> None:
    """Neither a text nor an id, neither in names nor in values; and everything ends by itself."""
    url = redis.fresh()
    async with answers_at(url) as kept, raw(url) as other, desk_over(SealedAnswers(kept, SEAL)) as desk:
        told = await desk.ask()
        source = told.meta.sources[0]
        said = ("answer is", "upload", "scripted", "handbook", source.document_id, source.chunk_id)
        for key in await other.keys("*"):
            kind = await other.type(key)
            held = [await other.get(key)] if kind == b"string" else await other.zrange(key, 0, -1)
            assert not any(word.encode() in place for word in said for place in (key, *held)), key
            assert 0 < await other.pttl(key) <= LONG_S * 1000
        assert await kept.forget([source.document_id]) == 0
        assert await SealedAnswers(kept, SEAL).forget([source.document_id]) == 1


async def test_lists_of_documents_end_with_the_last_answer_and_forget_those_that_are_over(
    redis: RedisServer,
) -> None:
    """A document that is asked about all day has no endless list."""
    url = redis.fresh()
    async with answers_at(url) as store, raw(url) as other:
        assert await store.write("long", b"a", 100.0, ["d1"])
        assert await store.write("short", b"a", 0.05, ["d1"])
        (listed,) = await other.keys("qa-gateway:{quota}:answers:*")
        assert 90_000 < await other.pttl(listed) <= 100_000

        async def over() -> bool:
            assert await store.write("next", b"a", 100.0, ["d1"])
            return not await other.zscore(listed, "short")

        await eventually(over)
        assert await other.zrange(listed, 0, -1) == [b"long", b"next"]


async def test_a_store_counts_what_it_takes_of_redis(redis: RedisServer) -> None:
    """With the names, the lists and what Redis needs for them: no more than its room is used."""
    url, most = redis.fresh(), 400_000
    store = RedisAnswers(url, most, CAP_MS)
    async with raw(url) as other:
        await store.write("first", b"", LONG_S, ["connected"])
        before = int((await other.info("memory"))["used_memory"])
        taken = 0
        while await store.write(f"{taken:064}", bytes(500), LONG_S, [f"{taken:060}-{n}" for n in range(8)]):
            taken += 1
        used = int((await other.info("memory"))["used_memory"]) - before
        await store.aclose()
    assert most / 2 < used < most


async def test_a_document_with_more_answers_than_go_at_a_time_is_forgotten(redis: RedisServer) -> None:
    """And a name in its list that nobody of ours wrote stops nothing."""
    url = redis.fresh()
    async with answers_at(url) as store, raw(url) as other:
        assert await store.write("one", CONTENT, LONG_S, ["d1"])
        await other.zadd(
            "qa-gateway:{quota}:answers:d1", {bytes([255, number]): number for number in range(250)}
        )
        assert await store.forget(["d1"]) == 1
        assert await store.read("one") is None
        assert await other.keys("*") == []
