"""Whose turn it is to make an answer: one process makes it, the others wait for it, and not for ever."""

import anyio
import pytest

from gateway.adapters.memory.answers import MemoryAnswers
from gateway.adapters.memory.models import Gate
from gateway.answer.cache import StoreUnavailable
from gateway.context import Deadline
from tests.unit.test_answer_cache import KEY, PATIENCE_S, PLENTY, TTL_S, Bench
from tests.unit.test_entry import ANSWER

LONG_MS = 60_000
OTHER = "another process"


class Watched(MemoryAnswers):
    """Tells when a claim was refused."""

    def __init__(self) -> None:
        super().__init__(PLENTY)
        self.refused = anyio.Event()

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        claimed = await super().claim(digest, owner, ttl_s)
        if not claimed:
            self.refused.set()
        return claimed


async def test_the_first_one_makes_it_and_gives_his_turn_back() -> None:
    """Also when his making fails."""
    bench = Bench()

    async def fails() -> None:
        async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None) as kept:
            assert kept is None
            assert not await bench.store.claim(KEY.digest, OTHER, TTL_S)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert await bench.store.claim(KEY.digest, OTHER, TTL_S)


async def test_who_waits_gets_what_the_other_process_has_kept() -> None:
    """As soon as it is there, though the other one still has the turn."""
    store = Watched()
    bench = Bench(store)
    assert await store.claim(KEY.digest, OTHER, TTL_S)

    async def keeps() -> None:
        await store.refused.wait()
        await bench.cache.keep(KEY, bench.made_now(ANSWER))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeps)
            async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None) as kept:
                assert kept == bench.made_now(ANSWER)
    assert not await store.claim(KEY.digest, "a third one", TTL_S)


async def test_who_waits_has_his_turn_when_the_other_has_kept_nothing() -> None:
    """An answer that may not be kept is made by each of them, one after the other."""
    store = Watched()
    bench = Bench(store)
    assert await store.claim(KEY.digest, OTHER, TTL_S)

    async def gives_up() -> None:
        await store.refused.wait()
        await store.unclaim(KEY.digest, OTHER)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(gives_up)
            async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None) as kept:
                assert kept is None
                assert not await store.claim(KEY.digest, OTHER, TTL_S)


class Renewed(MemoryAnswers):
    """Tells when the same owner has claimed again."""

    def __init__(self) -> None:
        super().__init__(PLENTY)
        self.owners: list[str] = []
        self.again = anyio.Event()
        self.longest_s = 0.0

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        if owner in self.owners:
            self.again.set()
        self.owners.append(owner)
        self.longest_s = max(self.longest_s, ttl_s)
        return await super().claim(digest, owner, ttl_s)


async def test_a_claim_is_short_and_renewed_while_the_answer_is_made() -> None:
    """Who dies is not waited for; each making of a process has a claim of its own."""
    store = Renewed()
    bench = Bench(store)
    with anyio.fail_after(PATIENCE_S):
        async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None):
            await store.again.wait()
        async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None):
            pass
    assert store.longest_s < LONG_MS / 1000 / 10
    assert len(set(store.owners)) == 2
    assert await store.claim(KEY.digest, OTHER, TTL_S)


async def test_a_quarter_of_his_time_is_the_most_that_anybody_waits() -> None:
    """The rest of it is for making the answer himself; the turn stays the other's."""
    bench = Bench()
    assert await bench.store.claim(KEY.digest, OTHER, TTL_S)
    deadline = Deadline.after(1000)
    async with bench.cache.turn(KEY, deadline, None) as kept:
        assert kept is None
        assert deadline.remaining() > 0.3
    assert await bench.store.claim(KEY.digest, OTHER, TTL_S)
    assert not await bench.store.claim(KEY.digest, "a third one", TTL_S)


async def test_what_he_has_seen_and_may_not_be_told_is_not_what_he_waits_for() -> None:
    """It is his turn to replace it; a newer one would do."""
    bench = Bench()
    stale = bench.made_now(ANSWER)
    await bench.cache.keep(KEY, stale)
    async with bench.cache.turn(KEY, Deadline.after(LONG_MS), stale) as kept:
        assert kept is None
    bench.clock.advance(1)
    await bench.cache.keep(KEY, bench.made_now(ANSWER))
    async with bench.cache.turn(KEY, Deadline.after(LONG_MS), stale) as kept:
        assert kept == bench.made_now(ANSWER)
    assert await bench.store.claim(KEY.digest, OTHER, TTL_S)


class Stuck(MemoryAnswers):
    """Claims, and doesn't come back from it."""

    def __init__(self) -> None:
        super().__init__(PLENTY)
        self.gate = Gate()

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        await super().claim(digest, owner, ttl_s)
        await self.gate.wait()
        return True


async def test_a_turn_is_given_back_by_who_never_heard_that_he_has_it() -> None:
    """He was cancelled meanwhile, or the store was too slow to say so."""
    store = Stuck()
    bench = Bench(store)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancels() -> None:
                await store.gate.reached.wait()
                scope.cancel()

            tasks.start_soon(cancels)
            async with bench.cache.turn(KEY, Deadline.after(LONG_MS), None):
                pass
    store.gate.release.set()
    assert await store.claim(KEY.digest, OTHER, TTL_S)
    assert await MemoryAnswers.claim(store, KEY.digest, OTHER, TTL_S)


class Gone(MemoryAnswers):
    """Can't be asked."""

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        raise StoreUnavailable


async def test_without_a_store_it_is_everybodys_turn() -> None:
    """No answer waits for it."""
    async with Bench(Gone(PLENTY)).cache.turn(KEY, Deadline.after(LONG_MS), None) as kept:
        assert kept is None


async def test_without_a_key_nobody_else_is_asked() -> None:
    """What is made for one alone."""
    bench = Bench()
    assert await bench.store.claim(KEY.digest, OTHER, TTL_S)
    async with bench.cache.turn(None, Deadline.after(LONG_MS), None) as kept:
        assert kept is None
