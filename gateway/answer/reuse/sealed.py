"""Sealed answers: a store learns neither what is kept in it nor which questions it is for."""

from collections.abc import Collection
from typing import Protocol

from gateway.answer.cache import AnswerStore


class Seal(Protocol):
    """One secret, and what is done with it."""

    def name(self, plain: str) -> str:
        """The same for the same, and nothing to guess it by."""
        ...

    def close(self, digest: str, content: bytes) -> bytes:
        """Unreadable, unalterable, and worth nothing under another digest."""
        ...

    def open(self, digest: str, sealed: bytes) -> bytes:
        """Raises Damaged for anything else than what ``close`` gave for this very digest."""
        ...


class SealedAnswers:
    """Implements AnswerStore over another one."""

    def __init__(self, store: AnswerStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    async def read(self, digest: str) -> bytes | None:
        sealed = await self._store.read(self._seal.name(digest))
        return None if sealed is None else self._seal.open(digest, sealed)

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        sealed = self._seal.close(digest, answer)
        return await self._store.write(self._seal.name(digest), sealed, ttl_s, self._names(documents))

    async def forget(self, documents: Collection[str]) -> int:
        return await self._store.forget(self._names(documents))

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        return await self._store.claim(self._seal.name(digest), owner, ttl_s)

    async def unclaim(self, digest: str, owner: str) -> None:
        await self._store.unclaim(self._seal.name(digest), owner)

    def _names(self, documents: Collection[str]) -> list[str]:
        return [self._seal.name(document) for document in documents]
