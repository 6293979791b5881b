"""The contract of a store of kept answers, over the one in this process and over Redis, sealed and not."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from gateway.adapters.aes import AesSeal
from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.redis.answers import RedisAnswers
from gateway.answer.cache import ENTRY_BYTES, AnswerStore
from gateway.answer.reuse.sealed import SealedAnswers
from gateway.bootstrap.answer_store import open_answers
from gateway.settings import Settings
from tests.harness.process import eventually
from tests.harness.redis_server import RedisServer

CAP_MS = 10_000
PLENTY = 64 * 1024 * 1024
LONG_S, SHORT_S = 600.0, 0.05
SEAL = AesSeal(bytes(range(32)))
#: of a seal, and room to spare
MORE = 100
CONTENT = bytes(range(256))

Open = Callable[..., AnswerStore]


@pytest.fixture(params=["memory", "embedded", "real"])
async def open_store(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens one empty store that takes ``most_bytes``."""
    async with AsyncExitStack() as stack:

        def open_one(most_bytes: int = PLENTY) -> AnswerStore:
            if request.param == "memory":
                return MemoryAnswers(most_bytes)
            if request.param == "embedded":
                opened = open_answers(Settings(answer_cache_bytes=most_bytes), stack)
                assert opened is not None
                return opened
            redis: RedisServer = request.getfixturevalue("redis")
            answers = RedisAnswers(redis.fresh(), most_bytes, CAP_MS)
            stack.push_async_callback(answers.aclose)
            return answers

        yield open_one


@pytest.fixture(params=["plain", "sealed"])
def store(open_store: Open, request: pytest.FixtureRequest) -> AnswerStore:
    """One with plenty of room."""
    opened = open_store()
    return SealedAnswers(opened, SEAL) if request.param == "sealed" else opened


async def write(store: AnswerStore, digest: str, *documents: str, content: bytes = CONTENT) -> None:
    assert await store.write(digest, content, LONG_S, documents)


async def kept(store: AnswerStore, *digests: str) -> list[str]:
    """Those of them that can be read."""
    return [digest for digest in digests if await store.read(digest) is not None]


# -- answers ----------------------------------------------------------------------------------------


async def test_what_was_written_is_read(store: AnswerStore) -> None:
    """Byte by byte, under its own name only, and the newest of what was written there."""
    assert await store.read("one") is None
    await write(store, "one", "d1")
    assert await store.read("one") == CONTENT
    assert await store.read("two") is None
    await write(store, "one", content=b"another")
    assert await store.read("one") == b"another"


async def test_an_answer_is_gone_after_its_time(store: AnswerStore) -> None:
    """Not before, and the others stay."""
    await write(store, "long", "d1")
    assert await store.write("short", CONTENT, SHORT_S, ["d1"])

    async def gone() -> bool:
        return await store.read("short") is None

    await eventually(gone)
    assert await kept(store, "long") == ["long"]
    assert await store.forget(["d1"]) == 1


async def test_the_last_writing_says_how_long(store: AnswerStore) -> None:
    """A short-lived answer in the place of a long-lived one ends at its own time."""
    await write(store, "one", "d1")
    assert await store.write("one", b"short", SHORT_S, ["d1"])

    async def gone() -> bool:
        return await store.read("one") is None

    await eventually(gone)


async def test_what_is_larger_than_an_entry_is_not_taken(store: AnswerStore) -> None:
    """A little less is."""
    assert not await store.write("large", bytes(ENTRY_BYTES + 1), LONG_S, ["d1"])
    assert await store.read("large") is None
    largest = bytes(ENTRY_BYTES - MORE)
    await write(store, "largest", "d1", content=largest)
    assert await store.read("largest") == largest


async def test_a_store_holds_no_more_than_it_may(open_store: Open) -> None:
    """Whether it refuses the newest or lets the oldest go: there are some, and not too many."""
    store, size, most = open_store(100_000), 10_000, 100_000
    names = [f"answer-{number}" for number in range(20)]
    taken = [await store.write(name, bytes(size), LONG_S, [name]) for name in names]
    found = await kept(store, *names)
    assert any(taken)
    assert most / 2 < len(found) * size < most
    assert not await store.write("larger than all of it", bytes(most), LONG_S, [])


# -- forgetting -------------------------------------------------------------------------------------


async def test_a_forgotten_document_takes_its_answers_along(store: AnswerStore) -> None:
    """Those that rest on it among others; the others stay, and nothing else is kept from being written."""
    await write(store, "both", "d1", "d2")
    await write(store, "first", "d1")
    await write(store, "second", "d2")
    await write(store, "none")
    assert await store.forget(["d1", "unknown"]) == 2
    assert await kept(store, "both", "first", "second", "none") == ["second", "none"]
    assert await store.forget(["d1"]) == 0
    await write(store, "first", "d1")
    assert await kept(store, "first") == ["first"]
    assert await store.forget(["d1", "d2"]) == 2
    assert await kept(store, "both", "first", "second", "none") == ["none"]


async def test_an_answer_that_rests_on_several_forgotten_documents_counts_once(store: AnswerStore) -> None:
    """It can go only once."""
    await write(store, "both", "d1", "d2")
    assert await store.forget(["d1", "d2"]) == 1


async def test_hundreds_of_answers_of_one_document_go(open_store: Open) -> None:
    """More than are taken away at a time."""
    store, names = open_store(), [f"answer-{number}" for number in range(250)]
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(write, store, name, "d1")
    assert await store.forget(["d1"]) == len(names)
    assert await kept(store, *names) == []


# -- claims -----------------------------------------------------------------------------------------


async def test_one_owner_makes_an_answer_at_a_time(store: AnswerStore) -> None:
    """Others may when he gives it up, which only he can."""
    assert await store.claim("one", "ann", LONG_S)
    assert not await store.claim("one", "bob", LONG_S)
    assert await store.claim("one", "ann", LONG_S)
    assert await store.claim("two", "bob", LONG_S)
    await store.unclaim("one", "bob")
    assert not await store.claim("one", "bob", LONG_S)
    await store.unclaim("one", "ann")
    assert await store.claim("one", "bob", LONG_S)
    await store.unclaim("unknown", "ann")


async def test_a_claim_ends_by_itself(store: AnswerStore) -> None:
    """Its owner may have died; what he does about it later changes nothing."""
    assert await store.claim("one", "ann", SHORT_S)

    async def free() -> bool:
        return await store.claim("one", "bob", LONG_S)

    await eventually(free)
    await store.unclaim("one", "ann")
    assert not await store.claim("one", "ann", LONG_S)


async def test_a_claim_that_is_renewed_lasts_from_then_on(store: AnswerStore) -> None:
    """By whoever holds it."""
    assert await store.claim("one", "ann", SHORT_S)
    assert await store.claim("one", "ann", LONG_S)
    assert await store.claim("later", "ann", SHORT_S)

    async def past() -> bool:
        return await store.claim("later", "bob", LONG_S)

    await eventually(past)
    assert not await store.claim("one", "bob", LONG_S)


async def test_of_many_who_claim_at_once_one_gets_it(store: AnswerStore) -> None:
    """There is no moment between looking and taking."""
    got: list[Any] = []

    async def try_it(owner: str) -> None:
        if await store.claim("one", owner, LONG_S):
            got.append(owner)

    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(try_it, f"owner-{number}")
    assert len(got) == 1


async def test_claims_and_answers_do_not_touch_each_other(store: AnswerStore) -> None:
    """Though they have the same name."""
    assert await store.claim("one", "ann", LONG_S)
    assert await store.read("one") is None
    await write(store, "one", "d1")
    await store.unclaim("one", "ann")
    assert await store.read("one") == CONTENT
    assert await store.claim("one", "bob", LONG_S)
    await store.forget(["d1"])
    assert not await store.claim("one", "ann", LONG_S)
