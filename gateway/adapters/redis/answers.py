"""RedisAnswers: whole answers that all processes may tell again, and who is just making one.

Redis may lose all of it at any moment: then answers are made again.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from gateway.adapters.redis.answer_scripts import CLAIM, LIST, UNCLAIM
from gateway.adapters.redis.apart import StepsApart
from gateway.adapters.redis.connection import ERRORS, Client, close_redis, open_redis
from gateway.adapters.redis.room import Room
from gateway.answer.cache import ENTRY_BYTES, StoreUnavailable

_ENTRY = b"qa-gateway:answer:"
#: one hash tag: an answer may rest on dozens of documents, and where the quota lies must stay room for it
_LISTS = "qa-gateway:{quota}:answers"
#: what an entry takes beside its content, and beside that in the list of each of its documents; measured
_ENTRY_OVERHEAD, _DOCUMENT_OVERHEAD = 256, 320
_FORGOTTEN_AT_ONCE = 200
_CLOSE_S = 1.0


class RedisAnswers:
    """Implements AnswerStore: one server, Sentinel or Cluster, as ``url`` says.

    Its size is bounded by what each process writes, ``most_bytes``, by the time that each entry has, and by
    what Redis has to give: it must not evict leases of the quota, so it evicts nothing for answers either.
    """

    def __init__(self, url: str, most_bytes: int, wait_ms: int) -> None:
        """``wait_ms`` bounds each wait of a step. Raises ConfigurationError for a URL that means nothing."""
        self._redis: Client = open_redis(url, wait_ms, decoded=False)
        self._steps = StepsApart()
        self._room = Room(most_bytes)

    async def read(self, digest: str) -> bytes | None:
        # no more than an entry may have: whoever else writes here can't fill this process
        found = await self._asked(self._redis.getrange(_entry(digest), 0, ENTRY_BYTES))
        return bytes(found) or None

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        size = len(answer) + _ENTRY_OVERHEAD + _DOCUMENT_OVERHEAD * len(documents)
        if len(answer) > ENTRY_BYTES or not self._room.take(size, ttl_s):
            return False
        # listed first: an entry that no list names would outlive its documents
        lists = [_LISTS, *map(_list, documents)]
        if not await self._asked(LIST.run(self._redis, lists, (digest, _ms(ttl_s)))):
            return False
        await self._asked(self._redis.set(_entry(digest), answer, px=_ms(ttl_s)))
        return True

    async def forget(self, documents: Collection[str]) -> int:
        return sum([await self._forget(_list(document)) for document in documents])

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        return bool(await self._asked(CLAIM.run(self._redis, (_claim(digest),), (owner, _ms(ttl_s)))))

    async def unclaim(self, digest: str, owner: str) -> None:
        await self._asked(UNCLAIM.run(self._redis, (_claim(digest),), (owner,)))

    async def aclose(self) -> None:
        """What is under way gets a second."""
        await self._steps.ended(_CLOSE_S)
        with _store_errors():
            await close_redis(self._redis)

    async def _forget(self, listed: str) -> int:
        """A name leaves the list when its entry has gone: stopped anywhere, another run finds the rest."""
        gone = 0
        while names := await self._asked(self._redis.zrange(listed, 0, _FORGOTTEN_AT_ONCE - 1)):
            gone += await self._asked(self._redis.unlink(*(_ENTRY + name for name in names)))
            await self._asked(self._redis.zrem(listed, *names))
        return gone

    async def _asked(self, step: Any) -> Any:
        """``step``: a command of redis-py's. Raises StoreUnavailable."""
        with _store_errors():
            return await self._steps.run(step)


def _entry(digest: str) -> bytes:
    return _ENTRY + digest.encode()


def _list(document: str) -> str:
    return f"{_LISTS}:{document}"


def _claim(digest: str) -> str:
    return f"qa-gateway:making:{digest}"


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except ERRORS as error:
        raise StoreUnavailable from error
