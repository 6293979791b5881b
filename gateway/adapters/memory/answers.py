"""Answers kept in this process: the oldest go when there is no room."""

from collections.abc import Collection


class MemoryAnswers:
    """Implements AnswerStore."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: dict[str, bytes] = {}

    async def read(self, digest: str) -> bytes | None:
        return self._kept.get(digest)

    async def write(self, digest: str, answer: bytes, ttl_s: float, documents: Collection[str]) -> bool:
        self._kept[digest] = answer
        return True

    async def forget(self, documents: Collection[str]) -> int:
        raise NotImplementedError

    async def claim(self, digest: str, owner: str, ttl_s: float) -> bool:
        return True


    async def unclaim(self, digest: str, owner: str) -> None:
        pass
