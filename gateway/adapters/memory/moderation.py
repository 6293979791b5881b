"""The moderator's twin: flags what holds one of its words."""

import math
from collections.abc import Mapping

import anyio
import anyio.lowlevel

from gateway.adapters.memory.models import Gate
from gateway.answer.calls.moderation import Verdict
from gateway.context import Deadline
from gateway.errors import DeadlineExceeded, GatewayError


class WordModerator:
    """``words`` maps what is flagged to its category. ``hold`` and ``error`` act on every check."""

    def __init__(
        self,
        words: Mapping[str, str] | None = None,
        *,
        hold: Gate | None = None,
        error: GatewayError | None = None,
        max_sensitivity: int = 3,
    ) -> None:
        self._words = dict(words or {})
        self._hold = hold
        self.error = error
        self._max_sensitivity = max_sensitivity
        #: every text it was asked about
        self.checked: list[str] = []

    @property
    def max_sensitivity(self) -> int:
        return self._max_sensitivity

    async def check(self, text: str, deadline: Deadline) -> Verdict:
        deadline.budget("moderation", math.inf)
        self.checked.append(text)
        if self._hold is not None:
            with anyio.move_on_after(deadline.remaining()) as scope:
                await self._hold.wait()
            if scope.cancelled_caught:
                raise DeadlineExceeded("moderation")
        await anyio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        found = {category for word, category in self._words.items() if word in text}
        return Verdict(bool(found), tuple(sorted(found)))
