"""The erasure of kept answers, as a clean-up needs it."""

from typing import Protocol


class AnswerErasure(Protocol):
    """Where this installation keeps answers."""

    async def forget(self, document_id: str) -> int | None:
        """Answers that rest on it are gone: how many. None when some may be left for their time."""
        ...
