"""The events of one answer and their legal order; no input or output happens here."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import ProtocolViolation


class AnswerStatus(StrEnum):
    ANSWERED = "ANSWERED"
    REFUSED_NO_EVIDENCE = "REFUSED_NO_EVIDENCE"


@dataclass(frozen=True, slots=True)
class Source:
    """One passage the answer may cite; scores as in ``gateway.answer.evidence.Evidence``."""

    n: int
    chunk_id: str
    document_id: str
    document_version: int
    title: str
    section: str
    page: int
    uri: str
    score: float | None
    raw_score: float
    score_label: str
    hit_reason: str
    risk: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CitedSource:
    """One citation of the finished answer; ``supported`` says whether the quote carries the sentence. The
    quote stands in ``chunk_id``: the passage of ``meta``, or a neighbour joined to it.
    """

    n: int
    chunk_id: str
    document_id: str
    document_version: int
    title: str
    section: str
    page: int
    uri: str
    quote: str
    supported: bool


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int
    output_tokens: int
    estimated: bool


@dataclass(frozen=True, slots=True)
class UsageWithRewrite(Usage):
    """``rewrite`` is what a model used that told the question anew; it is in none of the other numbers."""

    rewrite: Usage


@dataclass(frozen=True, slots=True)
class Timings:
    """Milliseconds since the request arrived; ``ttft_ms`` is None when no text was sent."""

    retrieval_ms: float
    ttft_ms: float | None
    total_ms: float


@dataclass(frozen=True, slots=True)
class Meta:
    """``searched_for``: what was looked for in place of a follow-up question."""

    request_id: str
    trace_id: str
    knowledge_base: str
    knowledge_revision: str
    release_sequence: int
    embedding_space_id: str
    model: str
    cached: bool
    sources: tuple[Source, ...]
    searched_for: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    text: str


@dataclass(frozen=True, slots=True)
class Searched:
    """Why a refusal is one, in what its reader may know: ``passages`` that he may see were looked at, and
    none of those nearest to his question has the words ``missing``, as he wrote them.
    """

    knowledge_base: str
    passages: int
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """``searched`` comes with a refusal only."""

    status: AnswerStatus
    reasons: tuple[str, ...]
    citations: tuple[CitedSource, ...]
    usage: Usage
    cacheable: bool
    cached: bool
    timings: Timings
    searched: Searched | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """``partial`` is True when text was sent before it."""

    code: str
    title: str
    detail: str
    partial: bool
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Revoked:
    """The client removes what it rendered. ``revoked_at`` is in seconds since the epoch."""

    reason: str
    revoked_at: float
    partial: bool = True


Event = Meta | Delta | Done | Error | Revoked
Terminal = Done | Error | Revoked

#: the name each event has on the wire
EVENT_NAMES: Mapping[type[Event], str] = {
    Meta: "meta",
    Delta: "delta",
    Done: "done",
    Error: "error",
    Revoked: "revoked",
}


class StreamState(StrEnum):
    IDLE = "idle"
    OPEN = "open"
    STREAMING = "streaming"
    CLOSED = "closed"


#: what may follow what; everything else is a violation
_ORDER: Mapping[StreamState, Mapping[type[Event], StreamState]] = {
    StreamState.IDLE: {Meta: StreamState.OPEN},
    StreamState.OPEN: {
        Delta: StreamState.STREAMING,
        Done: StreamState.CLOSED,
        Error: StreamState.CLOSED,
        Revoked: StreamState.CLOSED,
    },
    StreamState.STREAMING: {
        Delta: StreamState.STREAMING,
        Done: StreamState.CLOSED,
        Error: StreamState.CLOSED,
        Revoked: StreamState.CLOSED,
    },
    StreamState.CLOSED: {},
}


class StreamOrder:
    """Numbers the events of one answer and holds them to the order of the table."""

    def __init__(self) -> None:
        self.state = StreamState.IDLE
        self._sequence = 0

    def accept(self, event: Event) -> int:
        """The event's sequence number, from 1. Raises ProtocolViolation and changes nothing when the
        event may not come now; a refusal after text is such a case.
        """
        after = _ORDER[self.state].get(type(event))
        refused = isinstance(event, Done) and event.status is AnswerStatus.REFUSED_NO_EVIDENCE
        if after is None or (refused and self.state is StreamState.STREAMING):
            raise ProtocolViolation(f"{EVENT_NAMES[type(event)]} can't follow in state {self.state}")
        self.state = after
        self._sequence += 1
        return self._sequence
