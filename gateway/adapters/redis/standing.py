"""Standing: what one process knows of its place among those that share a quota. No I/O, no clock."""

import secrets
from dataclasses import dataclass, field

from gateway.adapters.redis.terms import QuotaTerms


@dataclass(frozen=True, slots=True)
class BeatReply:
    """What Redis says to a beat: its time in ms, for how long it is closed, the part n (0 = none), the
    version of the registry and the registry itself.
    """

    word: str
    now_ms: int
    closed_ms: int
    part: int
    version: int
    registry: str

    @property
    def renewed(self) -> bool:
        return self.word in ("open", "closed")


@dataclass(slots=True)
class Standing:
    """All times are of one clock of this process, in seconds.

    Time is always taken so that this process believes less than Redis: what it may keep is counted from
    when it asked, what it must wait for from when it was answered.
    """

    terms: QuotaTerms
    name: str
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    number: int = 0
    heard_ms: int | None = None
    part: int = 0
    version: int = 0
    registry: str = "{}"
    is_replaced: bool = False
    _asked_at: float = 0.0
    _answered_at: float = 0.0

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def asks(self, now: float) -> None:
        """A beat is about to go out. A part that Redis may have given to others by now isn't claimed."""
        if not self.keeps_part(now):
            self.part = 0

    def answered(self, asked_at: float, now: float, reply: BeatReply) -> None:
        """A beat was asked and its reply is here."""
        self.is_replaced = reply.word == "replaced"
        if self.is_replaced:
            self.part = 0
        if reply.renewed:
            self.heard_ms = reply.now_ms
            self.part = reply.part
            self.version = reply.version
            self.registry = reply.registry
            self._asked_at, self._answered_at = asked_at, now

    def is_in_touch(self, now: float) -> bool:
        """The newest reply is younger than a lease: to Redis this process isn't silent."""
        return self.heard_ms is not None and now < self._asked_at + self.terms.lease_s

    def is_alone(self, now: float) -> bool:
        """May start calls within its part: it has been silent for so long that nothing else counts.

        Not before Redis withholds its part and what was begun before that is over; no longer than that
        calls are over, and rates have left their window, when Redis forgets it.
        """
        starts = self._answered_at + self.terms.quiet_s + self.terms.margin_s
        return bool(self.part) and starts <= now and self.keeps_part(now + self.terms.settled_s)

    def keeps_part(self, now: float) -> bool:
        """Running calls within its part may go on without leases."""
        return bool(self.part) and now < self._asked_at + self.terms.forgotten_s - self.terms.margin_s

    def leased_until(self, asked_at: float) -> float:
        """Until when a call may rely on a lease that was asked for, or renewed, then."""
        return asked_at + self.terms.lease_s - self.terms.margin_s
