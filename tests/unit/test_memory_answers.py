"""Answers kept in a process: who leaves when there is no room, and that nothing is left of them."""

import hashlib
import tracemalloc

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.redis.room import Room
from tests.contract.catalog_world import Clock

LONG_S = 600.0
SIZE = 10_000
#: room for three answers of that size
ROOM = 3 * (SIZE + 1500)


async def write(store: MemoryAnswers, digest: str, *documents: str, ttl_s: float = LONG_S) -> None:
    assert await store.write(digest, bytes(SIZE), ttl_s, documents)


async def kept(store: MemoryAnswers, *digests: str) -> list[str]:
    return [digest for digest in digests if await store.read(digest) is not None]


async def test_what_was_told_least_recently_leaves_first() -> None:
    """Reading and writing both count as telling."""
    store = MemoryAnswers(ROOM)
    for name in "abc":
        await write(store, name)
    await store.read("a")
    await write(store, "b")
    await write(store, "d")
    assert await kept(store, *"abcd") == ["a", "b", "d"]


async def test_what_is_over_makes_room_before_anything_else_does() -> None:
    """Though it was told last."""
    clock = Clock()
    store = MemoryAnswers(ROOM, clock)
    await write(store, "a")
    await write(store, "b")
    await write(store, "short", ttl_s=1.0)
    clock.advance(1.0)
    await write(store, "c")
    assert await kept(store, "a", "b", "short", "c") == ["a", "b", "c"]


async def test_nothing_is_left_of_what_has_gone() -> None:
    """Over, pushed out, replaced or forgotten: neither its bytes nor its documents nor its time."""
    clock = Clock()
    store = MemoryAnswers(ROOM, clock)
    for number in range(500):
        await write(store, f"answer-{number % 7}", f"d{number}", ttl_s=1.0 + number % 5)
    await store.forget(["d499"])
    held = vars(store)
    assert len(held["_kept"]) <= 3
    assert len(held["_resting_on"]) <= 3
    assert len(held["_times"]) < 100
    clock.advance(10.0)
    assert await store.read("any") is None
    assert store.size == 0
    assert [len(held[name]) for name in ("_kept", "_resting_on", "_times")] == [0, 0, 0]


async def test_claims_that_nobody_gave_up_are_not_kept_for_ever() -> None:
    """Their time is over, and that is seen with the next one."""
    clock = Clock()
    store = MemoryAnswers(ROOM, clock)
    for number in range(50):
        assert await store.claim(f"answer-{number}", "ann", 1.0)
    clock.advance(1.0)
    assert await store.claim("another", "ann", 1.0)
    assert len(vars(store)["_claims"]) == 1


async def test_a_store_takes_no_more_memory_than_it_counts() -> None:
    """Small answers on many documents: there most of it is beside the content."""
    tracemalloc.start()
    try:
        store = MemoryAnswers(10**9)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(300):
            documents = [_name("document", number, place) for place in range(24)]
            await store.write(_name("answer", number), bytes(100), LONG_S, documents)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= store.size


def test_room_comes_back_when_the_time_is_over() -> None:
    """Not before, and in the order of times."""
    clock = Clock()
    room = Room(100, clock)
    assert room.take(60, 10.0)
    assert room.take(40, 5.0)
    assert not room.take(1, 1.0)
    clock.advance(5.0)
    assert not room.take(41, 1.0)
    assert room.take(40, 1.0)
    clock.advance(5.0)
    assert room.take(100, 1.0)
    assert not room.take(1, 1.0)


def _name(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()
