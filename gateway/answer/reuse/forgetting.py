"""Forgetting: answers that rest on a document are erased with it. Nobody is told them by then."""

import anyio

from gateway.answer.cache import AnswerStore, StoreUnavailable

#: a clean-up needn't hurry, but it waits for no store that is away
_CAP_S = 10.0


class Forgetting:
    """Implements the clean-up's AnswerErasure."""

    def __init__(self, store: AnswerStore, *, reaches_all: bool) -> None:
        """``reaches_all``: no other process keeps answers elsewhere."""
        self._store = store
        self._reaches_all = reaches_all

    async def forget(self, document_id: str) -> int | None:
        """How many; None when some may be left."""
        try:
            with anyio.fail_after(_CAP_S):
                gone = await self._store.forget([document_id])
        except (StoreUnavailable, TimeoutError):
            return None
        return gone if self._reaches_all else None
