"""What one asked question came to, as its client saw it."""

from dataclasses import dataclass
from enum import StrEnum

from loadtest.client_manner import Phase


class Ending(StrEnum):
    """LEFT is the client's own doing; TRUNCATED is a stream without its last event."""

    ANSWERED = "answered"
    REFUSED = "refused"
    REJECTED = "rejected"
    REVOKED = "revoked"
    ERROR = "error"
    TRUNCATED = "truncated"
    UNREACHABLE = "unreachable"
    LEFT = "left"


#: admission said no: this caller's rate or quota, shared capacity
REJECTIONS = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Record:
    """Times in ms from the moment the question was due, however late the driver or the connection was.

    ``at`` is that moment, in seconds of the run; ``lag_ms`` what the driver was late by. ``code`` is a
    problem's or an error event's, a revocation's reason, or ``client_timeout``; ``server_ttft_ms`` is what
    the last event says of itself. ``gap_ms`` is the longest wait between two deltas.
    """

    at: float
    lag_ms: float
    ending: Ending
    status: int | None = None
    code: str | None = None
    headers_ms: float | None = None
    meta_ms: float | None = None
    first_delta_ms: float | None = None
    last_ms: float | None = None
    ack_ms: float | None = None
    ack_status: int | None = None
    server_ttft_ms: float | None = None
    gap_ms: float | None = None
    deltas: int = 0
    cached: bool = False
    left: Phase | None = None
    request_id: str | None = None

    @property
    def lost(self) -> bool:
        """A stream that was admitted and came to no proper end, through no wish of its client's."""
        return self.status == 200 and self.ending in {Ending.TRUNCATED, Ending.ERROR}
