"""The answer cache as the path of a question sees it: bounded in time, and never in its way.

A store that fails, hangs or holds rubbish costs a question the time of one cap, and then nothing for a while.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

import anyio

from gateway.admission.breaker import Breaker
from gateway.answer.cache import AnswerKey, AnswerStore, Damaged, StoreUnavailable
from gateway.answer.outcome import KeptAnswer
from gateway.answer.reuse.keepable import Unkept
from gateway.context import Deadline
from gateway.observe.hooks import CacheRead, Hooks

_T = TypeVar("_T")

#: of the time that is left, what a member may wait for the answer of another process: if it doesn't come he
#: needs the rest for one of his own
_WAIT_SHARE = 0.25
_LOOK_EVERY_S = 0.05
#: a claim lasts that long, and is renewed while its answer is made: who dies, or can't give it back, is not
#: waited for any longer
_CLAIM_S, _RENEW_EVERY_S = 2.0, 0.5
#: what a writing may take: its asker has read the answer by then, only the record of his request waits
KEEP_CAP_S = 1.0


class EntryForm(Protocol):
    """How an answer is written down."""

    def encode(self, digest: str, kept: KeptAnswer) -> bytes: ...

    def decode(self, digest: str, content: bytes) -> KeptAnswer:
        """Raises Damaged for anything else than what ``encode`` gave for this very digest."""
        ...


class AnswerCache:
    """Reads, keeps, and waits for what another process makes."""

    def __init__(
        self,
        store: AnswerStore,
        form: EntryForm,
        hooks: Hooks,
        breaker: Breaker,
        *,
        owner: str,
        ttl_s: float,
        refusal_ttl_s: float,
        cap_ms: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``owner`` tells this process from the others; ``cap_ms`` bounds each step of the store that
        somebody waits for.
        """
        self._store = store
        self._form = form
        self._hooks = hooks
        self._breaker = breaker
        self._owner = owner
        self._ttl_s = ttl_s
        self._refusal_ttl_s = refusal_ttl_s
        self._cap_s = cap_ms / 1000
        self._clock = clock

    async def read(self, key: AnswerKey) -> KeptAnswer | None:
        """What was kept and isn't too old; not checked yet against anybody's permissions."""
        try:
            kept = await self._read(key.digest)
        except StoreUnavailable:
            self._hooks.cache(CacheRead.UNAVAILABLE)
            return None
        except Damaged:
            self._hooks.cache(CacheRead.DAMAGED)
            return None
        if kept is None:
            self._hooks.cache(CacheRead.MISS)
        return kept

    async def keep(self, key: AnswerKey | None, kept: KeptAnswer) -> None:
        """If it may be, and counts it or why not; whoever waited for it may be gone meanwhile. ``key`` None
        is for what its ``unkept`` keeps from being kept.
        """
        unkept = kept.ending.unkept
        if not unkept and key is not None:
            with anyio.CancelScope(shield=True):
                unkept = await self._keep(key.digest, kept)
        self._hooks.cache_write(unkept)

    @asynccontextmanager
    async def turn(
        self, key: AnswerKey | None, deadline: Deadline, stale: KeptAnswer | None
    ) -> AsyncIterator[KeptAnswer | None]:
        """What another process was making and has kept now; None: it is this one's turn, for the length of
        the block. ``stale`` was read before and is no use; with key None nobody else is looked at.
        """
        if key is None:
            yield None
            return
        kept, renewing = None, None
        owner = f"{self._owner}/{uuid.uuid4().hex}"  # no making ends the claim of another one
        try:
            with suppress(StoreUnavailable, Damaged):
                kept = await self._elsewhere(key.digest, owner, deadline, stale)
            if kept is None:
                renewing = asyncio.get_running_loop().create_task(self._renew(key.digest, owner))
            yield kept
        finally:
            if renewing is not None:
                renewing.cancel()
            await self._give_up(key.digest, owner)

    async def _read(self, digest: str) -> KeptAnswer | None:
        content = await self._asked(lambda: self._store.read(digest))
        if content is None:
            return None
        kept = self._form.decode(digest, content)
        ttl_s = self._ttl_of(kept)
        age_s = self._clock() - kept.made_at
        return kept if -ttl_s < age_s < ttl_s else None

    async def _keep(self, digest: str, kept: KeptAnswer) -> str:
        content = self._form.encode(digest, kept)
        documents = {ref.document_id for ref in kept.opening.documents}
        ttl_s = self._ttl_of(kept)
        try:
            taken = await self._asked(
                lambda: self._store.write(digest, content, ttl_s, documents), max(self._cap_s, KEEP_CAP_S)
            )
        except StoreUnavailable:
            return Unkept.UNAVAILABLE.value
        return "" if taken else Unkept.TOO_LARGE.value

    def _ttl_of(self, kept: KeptAnswer) -> float:
        return self._refusal_ttl_s if kept.ending.reasons else self._ttl_s

    async def _elsewhere(
        self, digest: str, owner: str, deadline: Deadline, stale: KeptAnswer | None
    ) -> KeptAnswer | None:
        last_look = Deadline.after(deadline.remaining() * _WAIT_SHARE * 1000)
        while True:
            claimed = await self._asked(lambda: self._store.claim(digest, owner, _CLAIM_S))
            kept = await self._read(digest)  # it may have come between the last look and the claim
            if kept is not None and kept != stale:
                return kept
            if claimed or last_look.remaining() <= 0:
                return None
            await anyio.sleep(_LOOK_EVERY_S)

    async def _renew(self, digest: str, owner: str) -> None:
        """Without the claim of another one: who had to make it beside the claim's owner renews nothing."""
        while True:
            await anyio.sleep(_RENEW_EVERY_S)
            with suppress(StoreUnavailable):
                await self._asked(lambda: self._store.claim(digest, owner, _CLAIM_S))

    async def _give_up(self, digest: str, owner: str) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self._asked(lambda: self._store.unclaim(digest, owner))
            except StoreUnavailable:
                return  # it ends by itself

    async def _asked(self, step: Callable[[], Awaitable[_T]], cap_s: float | None = None) -> _T:
        trial = self._breaker.admit()
        if trial is None:
            raise StoreUnavailable
        try:
            with anyio.move_on_after(self._cap_s if cap_s is None else cap_s):
                answer = await step()
                trial.succeeded()
                return answer
            raise StoreUnavailable
        except StoreUnavailable:
            trial.failed()
            raise
        finally:
            trial.release()
