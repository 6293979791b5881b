"""Answers kept in this process, within a number of bytes: what was told least recently goes first."""

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from gateway.answer.cache import ENTRY_BYTES

#: what an entry takes beside its content, and beside that for each of its documents; measured
_ENTRY_OVERHEAD, _DOCUMENT_OVERHEAD = 1024, 448
#: what has left before its time is taken from the list of times when there is that much more than needed
_SLACK = 64


@dataclass(frozen=True, slots=True)
class _Kept:
    content: bytes
    documents: frozenset[str]
    until: float

    @property
    def size(self) -> int:
        return len(self.content) + _ENTRY_OVERHEAD + _DOCUMENT_OVERHEAD * len(self.documents)


class MemoryAnswers:
    """Implements AnswerStore. ``clock`` gives seconds that only ever go on."""

    def __init__(self, most_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_bytes = most_bytes
        self._clock = clock
        self._bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._times: list[tuple[float, str]] = []
        self._resting_on = _Index()
        self._claims: dict[str, tuple[str, float]] = {}

    @property
    def size(self) -> int:
        """Bytes in use, about."""
        return self._bytes

    async def read(self, digest: str) -> bytes | None:
        self._expire()
        kept = self._kept.get(digest)
        if kept is None:
            return None
        self._kept.move_to_end(digest)
        return kept.content

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        self._expire()
        kept = _Kept(answer, frozenset(documents), self._clock() + ttl_s)
        if len(answer) > ENTRY_BYTES or kept.size > self._most_bytes:
            return False
        self._drop(digest)
        self._add(digest, kept)
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))
        return True

    async def forget(self, documents: Collection[str]) -> int:
        self._expire()
        digests = {digest for document in documents for digest in self._resting_on.of(document)}
        for digest in digests:
            self._drop(digest)
        return len(digests)

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        now = self._clock()
        self._claims = {name: claim for name, claim in self._claims.items() if claim[1] > now}
        holder, _ = self._claims.get(digest, (owner, now))
        if holder != owner:
            return False
        self._claims[digest] = (owner, now + ttl_s)
        return True

    async def unclaim(self, digest: str, owner: str) -> None:
        holder, _ = self._claims.get(digest, ("", 0.0))
        if holder == owner:
            del self._claims[digest]

    def _add(self, digest: str, kept: _Kept) -> None:
        self._kept[digest] = kept
        self._bytes += kept.size
        self._resting_on.add(digest, kept.documents)
        heapq.heappush(self._times, (kept.until, digest))

    def _drop(self, digest: str) -> None:
        kept = self._kept.pop(digest, None)
        if kept is not None:
            self._bytes -= kept.size
            self._resting_on.remove(digest, kept.documents)

    def _expire(self) -> None:
        """What is over is no longer in this process, asked for or not."""
        now = self._clock()
        while self._times and self._times[0][0] <= now:
            _, digest = heapq.heappop(self._times)
            if digest in self._kept and self._kept[digest].until <= now:
                self._drop(digest)
        if len(self._times) > 2 * len(self._kept) + _SLACK:
            self._times = [(kept.until, digest) for digest, kept in self._kept.items()]
            heapq.heapify(self._times)


class _Index:
    """Which answers rest on a document; it knows no document that none rests on."""

    def __init__(self) -> None:
        self._digests: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._digests)

    def of(self, document: str) -> frozenset[str]:
        return frozenset(self._digests.get(document, ()))

    def add(self, digest: str, documents: Iterable[str]) -> None:
        for document in documents:
            self._digests.setdefault(document, set()).add(digest)

    def remove(self, digest: str, documents: Iterable[str]) -> None:
        for document in documents:
            digests = self._digests[document]
            digests.discard(digest)
            if not digests:
                del self._digests[document]
