"""Manners of clients: who stays to the end, who leaves when and how, who reads slowly."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """How far an answer has come for its client."""

    BEFORE_HEADERS = "before_headers"
    AFTER_META = "after_meta"
    MID_STREAM = "mid_stream"
    ENDED = "ended"


class How(StrEnum):
    """FIN is what a closed page sends, RST what the system sends for a process that was killed."""

    FIN = "fin"
    RST = "rst"


@dataclass(frozen=True, slots=True)
class Leaving:
    """When a client goes away: ``after_s`` seconds after it asked while there are no headers, right after
    ``meta``, or after so many deltas.
    """

    phase: Phase
    how: How = How.FIN
    after_s: float = 0.0
    after_deltas: int = 1


@dataclass(frozen=True, slots=True)
class Manner:
    """One client's ways. ``bytes_per_s`` is a slow reader's pace; ``acknowledges`` the end it saw;
    ``reuses`` says that it takes an answer that was made for somebody else.
    """

    leaving: Leaving | None = None
    bytes_per_s: float | None = None
    acknowledges: bool = False
    reuses: bool = False


STAYS = Manner()
