"""The answer cache between a question and a store that is slow, gone, or holds what nobody should be told."""

from collections.abc import Collection
from dataclasses import replace

import anyio
import pytest

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.admission.breaker import Breaker
from gateway.answer.cache import AnswerKey
from gateway.answer.outcome import KeptAnswer
from gateway.answer.reuse.caching import AnswerCache
from gateway.answer.reuse.entry import Entries
from gateway.answer.reuse.keepable import Unkept
from gateway.observe.hooks import CacheRead
from gateway.observe.metrics import Metrics
from tests.contract.catalog_world import Clock
from tests.unit.test_entry import ANSWER, REFUSAL

PATIENCE_S = 20
PLENTY = 64 * 1024 * 1024
TTL_S, REFUSAL_TTL_S = 600.0, 30.0
CAP_MS, REST_S = 10, 2.0
KEY = AnswerKey(
    tenant="acme",
    kb_id="kb",
    kb_revision="r1",
    embedding_space_id="space",
    scope_digest="scope",
    acl_revision=1,
    question_hash="question",
    conversation_digest="",
    prompt_version="prompt",
    retrieval_config_version="config",
    reranker_version="",
    model="model",
    language="en",
    output_policy_version="policy",
    max_output_tokens=512,
    incarnation="incarnation",
    gateway_digest="gateway",
)


class Hanging(MemoryAnswers):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__(PLENTY)
        self.asked = 0

    async def read(self, digest: str) -> bytes | None:
        self.asked += 1
        await anyio.sleep_forever()
        return None

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        self.asked += 1
        await anyio.sleep_forever()
        return True


class Bench:
    """A cache over a store, at a time that stands still."""

    def __init__(self, store: MemoryAnswers | None = None) -> None:
        self.store = store or MemoryAnswers(PLENTY)
        self.clock = Clock()
        self.metrics = Metrics(close_reasons=(), statuses=(), unkept=map(str, Unkept))
        self.cache = AnswerCache(
            self.store,
            Entries(),
            self.metrics,
            Breaker(3, REST_S, self.clock),
            owner="process",
            ttl_s=TTL_S,
            refusal_ttl_s=REFUSAL_TTL_S,
            cap_ms=CAP_MS,
            clock=self.clock,
        )

    def made_now(self, kept: KeptAnswer) -> KeptAnswer:
        return replace(kept, made_at=self.clock())

    def reads(self, result: CacheRead) -> float | None:
        return self.metrics.registry.get_sample_value("gateway_cache_total", {"result": result.value})

    def writes(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("gateway_cache_writes_total", {"result": result})


async def test_a_store_that_hangs_costs_three_caps_and_then_nothing() -> None:
    """Until it has rested; then one question tries it."""
    store = Hanging()
    bench = Bench(store)
    with anyio.fail_after(PATIENCE_S):
        for _ in range(20):
            assert await bench.cache.read(KEY) is None
        await bench.cache.keep(KEY, bench.made_now(ANSWER))
        assert store.asked == 3
        bench.clock.advance(REST_S)
        for _ in range(5):
            assert await bench.cache.read(KEY) is None
        assert store.asked == 4
    assert bench.reads(CacheRead.UNAVAILABLE) == 25
    assert bench.writes("unavailable") == 1


@pytest.mark.parametrize(("kept", "ttl_s"), [(ANSWER, TTL_S), (REFUSAL, REFUSAL_TTL_S)])
async def test_an_answer_is_told_for_its_time_whatever_the_store_still_has(
    kept: KeptAnswer, ttl_s: float
) -> None:
    """A refusal for a shorter one; and none that comes from the future."""
    bench = Bench()
    await bench.cache.keep(KEY, bench.made_now(kept))
    assert bench.writes("kept") == 1
    made_at = bench.clock()
    for ago_s, told in ((0.0, True), (ttl_s - 1, True), (ttl_s, False), (1 - ttl_s, True), (-ttl_s, False)):
        bench.clock.now = made_at + ago_s
        found = await bench.cache.read(KEY)
        assert (found == replace(kept, made_at=made_at)) == told, ago_s
        assert (found is None) != told


async def test_rubbish_and_the_answer_of_another_key_are_told_to_nobody() -> None:
    """And counted by a name of their own."""
    bench = Bench()
    await bench.cache.keep(KEY, bench.made_now(ANSWER))
    written = await bench.store.read(KEY.digest)
    assert written is not None
    other = replace(KEY, tenant="globex")
    for content in (written, b"rubbish"):
        await bench.store.write(other.digest, content, TTL_S, [])
        assert await bench.cache.read(other) is None
    assert bench.reads(CacheRead.DAMAGED) == 2
    assert await bench.cache.read(KEY) is not None


async def test_an_answer_that_finds_no_room_is_not_kept_and_that_is_counted() -> None:
    """Its asker has it already."""
    bench = Bench(MemoryAnswers(100))
    await bench.cache.keep(KEY, bench.made_now(ANSWER))
    assert bench.writes(Unkept.TOO_LARGE.value) == 1
    assert await bench.cache.read(KEY) is None
    assert bench.reads(CacheRead.MISS) == 1


async def test_an_answer_that_may_not_be_kept_never_reaches_a_store() -> None:
    """By the word of its ending."""
    store = Hanging()
    bench = Bench(store)
    unkept = replace(ANSWER, ending=replace(ANSWER.ending, unkept=Unkept.UNFINISHED.value))
    await bench.cache.keep(KEY, bench.made_now(unkept))
    assert (store.asked, bench.writes("unfinished")) == (0, 1)


async def test_a_probe_whose_asker_has_left_lets_the_next_one_try() -> None:
    """Nobody knows how it would have gone."""
    store = Hanging()
    bench = Bench(store)
    with anyio.fail_after(PATIENCE_S):
        for _ in range(3):
            assert await bench.cache.read(KEY) is None
        bench.clock.advance(REST_S)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bench.cache.read, KEY)
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert store.asked == 4
        assert await bench.cache.read(KEY) is None
    assert store.asked == 5


class Slow(MemoryAnswers):
    """Takes longer to write than a question may wait for it."""

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        await anyio.sleep(5 * CAP_MS / 1000)
        return await super().write(digest, answer, ttl_s, documents)


async def test_a_writing_may_take_longer_than_a_look() -> None:
    """Nobody waits for it; and on a busy machine reuse is needed most."""
    bench = Bench(Slow(PLENTY))
    await bench.cache.keep(KEY, bench.made_now(ANSWER))
    assert bench.writes("kept") == 1
    assert await bench.cache.read(KEY) is not None
