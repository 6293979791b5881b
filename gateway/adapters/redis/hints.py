"""Hints through Redis: a short stream that every process reads from where it stopped.

Not Pub/Sub, which loses what is said while a connection is down. The entries hold nothing: they say that
rights have changed and not whose, so whoever can write them can only make processes look.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.adapters.redis.connection import ERRORS, close_redis, open_redis
from gateway.observe.logging import get_logger

_STREAM = "gateway:rights"
#: entries kept: only the newest is of use, the others to whoever reads from an older one
_KEPT = 64
_START = "0-0"
_TELL_MS = 250
#: how long one read may wait for news, and for Redis to say that there is none
_NEWS_MS, _READ_MS = 5_000, 7_000
_PAUSES_S = (0.1, 0.5, 2.0, 5.0)

_log = get_logger("revocations")


class RedisHints:
    """Implements ChangeHints. Raises ConfigurationError for a URL that means nothing."""

    def __init__(self, url: str) -> None:
        self._telling = open_redis(url, _TELL_MS)
        self._reading = open_redis(url, _READ_MS)

    async def follow(self, hinted: Callable[[], None]) -> None:
        failures, last = 0, ""
        while True:
            try:
                last = last or await self._newest()
                hinted()  # nobody was reading until now
                while True:
                    last = await self._after(last, hinted)
                    if failures:
                        _log.info("revocations.hints_back", part="redis")
                    failures = 0
            except ERRORS as error:
                if not failures:
                    _log.warning("revocations.hints_lost", part="redis", cause=type(error).__name__)
            await asyncio.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1

    async def tell(self) -> None:
        """Adds an entry; where Redis doesn't take it in time the others find out by themselves."""
        try:
            await self._telling.xadd(_STREAM, {"rights": "changed"}, maxlen=_KEPT)
        except ERRORS as error:
            _log.warning("revocations.hint_untold", part="redis", cause=type(error).__name__)

    async def aclose(self) -> None:
        await close_redis(self._telling)
        await close_redis(self._reading)

    async def _newest(self) -> str:
        """The id to read on from."""
        entries: Any = await self._reading.xrevrange(_STREAM, count=1)
        return str(entries[0][0]) if entries else _START

    async def _after(self, last: str, hinted: Callable[[], None]) -> str:
        """The newest id, once there is news or the wait for it is over."""
        news: Any = await self._reading.xread({_STREAM: last}, count=_KEPT, block=_NEWS_MS)
        if not news:
            return last
        hinted()
        ((_, entries),) = news
        return str(entries[-1][0])
