"""The trace of what was searched for somebody: kept for him and for operators, never in a log.

It quotes documents, so whoever shows one re-checks every document that it names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.access.authorizer import DocumentRef

#: characters of a passage that are kept to recognise it by
PREVIEW_CHARS = 200


@dataclass(frozen=True, slots=True)
class TracedPassage:
    """One passage as it was judged, best first; scores as in ``gateway.answer.evidence.Evidence``."""

    n: int
    chunk_id: str
    document_id: str
    document_version: int
    title: str
    section: str
    page: int
    score: float | None
    raw_score: float
    score_label: str
    hit_reason: str
    preview: str

    @property
    def ref(self) -> DocumentRef:
        return DocumentRef(self.document_id, self.document_version)


@dataclass(frozen=True, slots=True)
class TracedCheck:
    """One threshold of the gate by its name; None where there is no such number."""

    name: str
    passed: bool
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """What a search found and what the gate made of it.

    ``candidates`` is how many passages the caller was permitted, ``dropped`` how many the re-check took out,
    by its reasons; ``documents`` are those of all candidates. ``fallback`` says why ``auto`` left its first
    path, '' when it didn't. ``missing`` are words of the question that no passage has; ``score`` is the
    gate's, no probability.
    """

    mode: str = ""
    served_by: str = ""
    fallback: str = ""
    category: str = ""
    candidates: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    documents: tuple[DocumentRef, ...] = ()
    passages: tuple[TracedPassage, ...] = ()
    hints: tuple[str, ...] = ()
    reranker: str = ""
    rerank_skipped: str = ""
    relevance: str = "none"
    score: float | None = None
    checks: tuple[TracedCheck, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def refs(self) -> frozenset[DocumentRef]:
        """Every document that any of it comes from."""
        return frozenset(self.documents).union(passage.ref for passage in self.passages)


NOTHING_FOUND = Findings()


class Told(StrEnum):
    """How its asker came to an answer."""

    MADE = "made"  # for his question
    SHARED = "shared"  # for somebody who asked the same, while he waited
    KEPT = "kept"  # earlier, and told again


class RewrittenBy(StrEnum):
    """Who told a follow-up so that it stands alone."""

    RULES = "rules"
    MODEL = "model"


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One ended search or answer. ``at`` is in seconds since the epoch, ``timings`` are milliseconds.

    ``searched`` is what was looked for in place of the question, '' for the question itself. ``outcome`` is
    an answer's status, a search's relevance, or the code of what ended it; ``told`` says how an answer came,
    and ``rewritten_by`` who wrote what was looked for, '' for the asker himself.
    """

    trace_id: str
    request_id: str
    at: float
    tenant: str
    subject: str
    kind: str
    kb_id: str
    knowledge_base: str
    release_id: str
    release_sequence: int
    config: str
    question: str
    searched: str
    outcome: str
    reasons: tuple[str, ...] = ()
    findings: Findings = NOTHING_FOUND
    timings: Mapping[str, float] = field(default_factory=dict)
    told: str = ""
    rewritten_by: str = ""


class TraceStore(Protocol):
    """Where traces are kept. A method is one transaction, erasing several; each raises CatalogUnavailable."""

    async def append_traces(self, records: Sequence[TraceRecord]) -> None:
        """Without what they quote of versions that were deleted since. A known trace id changes nothing."""
        ...

    async def trace(
        self, tenant: str, *, request_id: str | None = None, trace_id: str | None = None
    ) -> TraceRecord | None:
        """The tenant's trace of this request, or of this id; what was erased of it is missing."""
        ...

    async def erase_traces(self, tenant: str, subject: str) -> int:
        """Everything of one person; how many there were."""
        ...

    async def purge_traces(self, older_s: float) -> int:
        """The oldest of those that are older; how many are gone, at most some hundreds a call."""
        ...
