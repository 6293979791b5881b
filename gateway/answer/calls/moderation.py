"""The port to a moderator, and the output policy: what may leave of an answer, and when."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.context import Deadline


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a moderator says of a text; ``categories`` are its own names for what it found, never the text."""

    flagged: bool
    categories: tuple[str, ...] = ()


class Moderator(Protocol):
    """Judges texts that are about to leave."""

    @property
    def max_sensitivity(self) -> int:
        """Answers that rest on passages above this never leave to it."""
        ...

    async def check(self, text: str, deadline: Deadline) -> Verdict:
        """Raises ModerationUnavailable, or DeadlineExceeded with stage ``moderation``."""
        ...


class ModerationMode(StrEnum):
    """SEGMENTED checks each sentence before it leaves, BUFFERED the whole answer before any of it does."""

    SEGMENTED = "segmented"
    BUFFERED = "buffered"


@dataclass(frozen=True, slots=True)
class OutputPolicy:
    """How answers are checked, by whom, and how long one check may take.

    Without a policy text leaves as it comes.
    """

    mode: ModerationMode
    moderator: Moderator
    cap_ms: int
