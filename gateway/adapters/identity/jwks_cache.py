"""The cache of an issuer's keys: one fetch for all who wait, and old keys for a while when it is gone."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import anyio

from gateway.adapters.identity.jwks import KeySet
from gateway.adapters.identity.signature import TrustedKey
from gateway.errors import IdentityUnavailable, TokenInvalid
from gateway.observe.logging import get_logger

_CLOSE_S = 2.0
_log = get_logger("identity")


class KeyCache:
    """Keys of one issuer, all times in seconds.

    Keys older than ``fresh_s`` are refreshed while they still serve; those older than ``bound_s`` serve
    nobody. An unknown ``kid`` causes a fetch at most each ``unknown_s``, and a fetch that failed isn't
    repeated for ``retry_s``. ``fetch`` raises IdentityUnavailable and bounds its own time.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[KeySet]],
        *,
        fresh_s: float = 300.0,
        bound_s: float = 3600.0,
        unknown_s: float = 30.0,
        retry_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._fresh_s, self._bound_s = fresh_s, bound_s
        self._unknown_s, self._retry_s = unknown_s, retry_s
        self._clock = clock
        self._keys: KeySet | None = None
        self._fetched_at = self._failed_at = self._looked_at = -math.inf
        self._begun = 0  # fetches so far; the keys are those of number ``_held``
        self._held = 0
        self._failing = False
        self._running: asyncio.Task[None] | None = None

    async def key_for(self, kid: str | None) -> TrustedKey:
        """Raises TokenInvalid for a key the issuer doesn't have, IdentityUnavailable when nobody can tell."""
        begun = self._begun
        await self._make_usable()
        found = self._find(kid)
        if found is None and kid is not None:
            if self._held <= begun:  # the keys may be older than the token
                await self._look_again()
                found = self._find(kid)
            if found is None and self._failing:
                raise self._unavailable()
        if found is None:
            raise TokenInvalid()
        return found

    async def ready(self) -> bool:
        """Whether tokens can be verified now; fetches the keys when there are none."""
        try:
            await self._make_usable()
        except IdentityUnavailable:
            return False
        return True

    async def aclose(self) -> None:
        """Ends a fetch that is under way."""
        if self._running is not None:
            self._running.cancel()
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await asyncio.wait({self._running})

    async def _make_usable(self) -> None:
        if self._age() > self._bound_s:
            await self._joined(self._refresh())
            if self._age() > self._bound_s:
                raise self._unavailable()
        elif self._age() > self._fresh_s:
            self._refresh()

    async def _look_again(self) -> None:
        if self._running is None:
            if self._clock() - self._looked_at < self._unknown_s:
                return
            # Noted before anybody waits: whoever leaves in the middle of it has looked all the same.
            self._looked_at = self._clock()
        await self._joined(self._refresh())

    def _find(self, kid: str | None) -> TrustedKey | None:
        return None if self._keys is None else self._keys.find(kid)

    def _age(self) -> float:
        return self._clock() - self._fetched_at

    def _unavailable(self) -> IdentityUnavailable:
        return IdentityUnavailable(retry_after_ms=math.ceil(self._retry_s * 1000))

    def _refresh(self) -> asyncio.Task[None] | None:
        """The fetch under way, or a new one; None when the last one has failed a moment ago.

        A task of its own, so that the request that started it may be cancelled without failing the others.
        """
        if self._running is None:
            if self._clock() - self._failed_at < self._retry_s:
                return None
            self._begun += 1
            self._running = asyncio.create_task(self._load(self._begun, self._clock()))
        return self._running

    @staticmethod
    async def _joined(fetch: "asyncio.Task[None] | None") -> None:
        if fetch is not None:
            await asyncio.wait({fetch})
            if not fetch.cancelled():
                fetch.result()  # a defect is everybody's

    async def _load(self, number: int, started_at: float) -> None:
        try:
            keys = await self._fetch()
        except IdentityUnavailable as error:
            _log.warning("identity.keys_not_fetched", reason=error.detail)
            self._failing, self._failed_at = True, self._clock()
            self._looked_at = -math.inf  # nothing was seen; the next look is bounded by ``retry_s``
        else:
            self._keys, self._held, self._fetched_at = keys, number, started_at
            self._failing, self._failed_at = False, -math.inf
        finally:
            self._running = None
