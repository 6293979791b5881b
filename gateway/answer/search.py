"""Steps 9-11 of a question: embed, retrieve, re-check. What leaves here is permitted right now."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.access.authorizer import DocumentRef, DropReason, Recheck
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.answer.evidence import Evidence, GateSignals
from gateway.context import RequestContext
from gateway.observe.hooks import Stage
from gateway.observe.trace import Trace
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk, embedded_text
from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.lexicon import Lexicon, TermStatistics
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.retriever import Found, Retriever, belongs
from gateway.retrieval.store import ChunkReader
from gateway.retrieval.terms import terms_of

_DEEPER = 8


@dataclass(frozen=True, slots=True)
class SearchCaps:
    """Milliseconds each step may take, always inside the request's deadline; ``enough`` is how many
    candidates must outlive the re-check before a second, deeper search isn't worth it.
    """

    embed_ms: int
    retrieval_ms: int
    catalog_ms: int
    enough: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Permitted candidates, best first; ``dropped`` counts what the re-check took out."""

    question: str
    candidates: tuple[Candidate, ...]
    dropped: Counter[str]
    statistics: TermStatistics
    question_terms: tuple[str, ...]

    @property
    def refs(self) -> frozenset[DocumentRef]:
        return frozenset(candidate.ref for candidate in self.candidates)

    def signals(self, evidence: Sequence[Evidence]) -> GateSignals:
        """What the gate looks at, over the passages that may leave as evidence."""
        used = {item.chunk.chunk_id for item in evidence}
        similarities = [c.similarity for c in self.candidates if c.chunk.chunk_id in used]
        passages = [passage_terms(item.chunk) for item in evidence]
        return GateSignals(
            candidates=len(evidence),
            expired=self.dropped[DropReason.EXPIRED.value],
            top_similarity=max(similarities, default=None),
            coverage=self.statistics.coverage(self.question_terms, passages),
            missing_key_terms=missing_key_terms(self.question, passages),
        )


def passage_terms(chunk: Chunk) -> frozenset[str]:
    return frozenset(terms_of(embedded_text(chunk.title, chunk.section, chunk.content)))


class PermittedSearch:
    """Finds passages for one bound request; every stage has a bulkhead and a cap."""

    def __init__(
        self,
        retriever: Retriever,
        reader: ChunkReader,
        lexicon: Lexicon,
        recheck: Recheck,
        *,
        embedding: Bulkhead,
        retrieval: Bulkhead,
        caps: SearchCaps,
    ) -> None:
        self._retriever = retriever
        self._reader = reader
        self._lexicon = lexicon
        self._recheck = recheck
        self._embedding = embedding
        self._retrieval = retrieval
        self._caps = caps

    async def run(
        self, context: RequestContext, trace: Trace, question: str, category: str | None = None
    ) -> SearchResult:
        """Raises Overloaded, DeadlineExceeded, Unavailable of whichever part failed."""
        query = ScopedQuery(context.scope, context.release, int(time.time()), category)
        deadline = context.deadline
        with trace.stage(Stage.EMBED), await self._embedding.acquire(deadline):
            with stage_time(deadline, "embedding", self._caps.embed_ms) as stage:
                vector = await self._retriever.embed(query, question, stage)
        with trace.stage(Stage.RETRIEVE), await self._retrieval.acquire(deadline):
            trace.hooks.retrieval()
            with stage_time(deadline, "retrieval", self._caps.retrieval_ms) as stage:
                found = await self._retriever.search(query, question, vector, stage)
        kept, dropped = await self._permitted(context, trace, found)
        if found.cut and dropped.total() and len(kept) < self._caps.enough:
            # What was deleted or revoked since the build crowds out what is still there: look deeper.
            with trace.stage(Stage.RETRIEVE), await self._retrieval.acquire(deadline):
                with stage_time(deadline, "retrieval", self._caps.retrieval_ms) as stage:
                    found = await self._retriever.search(query, question, vector, stage, deeper=_DEEPER)
            kept, dropped = await self._permitted(context, trace, found)
        terms = tuple(dict.fromkeys(terms_of(question)))
        with trace.stage(Stage.RECHECK):
            with stage_time(deadline, "catalog", self._caps.catalog_ms) as stage:
                statistics = await self._lexicon.statistics(query, terms, stage)
        for reason, count in dropped.items():
            for _ in range(count):
                trace.hooks.recheck_drop(reason)
        trace.note(candidates=len(found.candidates), permitted=len(kept))
        return SearchResult(question, kept, dropped, statistics, terms)

    async def passage(self, context: RequestContext, chunk_id: str) -> Chunk | None:
        """One passage by its id, through the same filter and re-check; None when not permitted."""
        query = ScopedQuery(context.scope, context.release, int(time.time()))
        with await self._retrieval.acquire(context.deadline):
            with stage_time(context.deadline, "retrieval", self._caps.retrieval_ms) as stage:
                found = await self._reader.fetch(query, [chunk_id], stage)
        for chunk in found:
            ref = DocumentRef(chunk.document_id, chunk.document_version)
            if belongs(query, chunk) and await self.still_permitted(context, frozenset({ref})):
                return chunk
        return None

    async def still_permitted(self, context: RequestContext, refs: frozenset[DocumentRef]) -> bool:
        """Whether every one of these documents may still be shown to the caller."""
        with stage_time(context.deadline, "catalog", self._caps.catalog_ms):
            verdicts = await self._recheck.check(context.scope, tuple(refs), time.time())
        return all(verdict is None for verdict in verdicts.values())

    async def _permitted(
        self, context: RequestContext, trace: Trace, found: Found
    ) -> tuple[tuple[Candidate, ...], Counter[str]]:
        """The candidates that the catalog permits right now, and a count of why others aren't."""
        dropped: Counter[str] = Counter({DropReason.FOREIGN.value: found.foreign})
        refs = [candidate.ref for candidate in found.candidates]
        with trace.stage(Stage.RECHECK):
            with stage_time(context.deadline, "catalog", self._caps.catalog_ms):
                verdicts = await self._recheck.check(context.scope, refs, time.time())
        kept = []
        for candidate in found.candidates:
            reason = verdicts[candidate.ref]
            if reason is None:
                kept.append(candidate)
            else:
                dropped[reason.value] += 1
        return tuple(kept), dropped
