"""Steps 9-12 of a question: embed, retrieve, re-check, rerank. What leaves here is permitted right now."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gateway.access.authorizer import DocumentRef, DropReason, Recheck
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.answer.evidence import Evidence, GateSignals
from gateway.answer.judging import Judging
from gateway.answer.reranking import RERANKED, Ranked, Reranking
from gateway.answer.signals import ReadPassage, Wanted
from gateway.context import RequestContext
from gateway.observe.hooks import RerankSkip, Stage
from gateway.observe.trace import Trace
from gateway.retrieval.asking import telling_terms
from gateway.retrieval.candidate import Candidate
from gateway.retrieval.chunk import Chunk, embedded_text
from gateway.retrieval.hints import Hint, hints_of, known, shown, spellings_of
from gateway.retrieval.keyterms import missing_key_terms
from gateway.retrieval.lexicon import Lexicon, TermStatistics
from gateway.retrieval.modes import Mode
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.retriever import Found, Retriever, belongs
from gateway.retrieval.risk import RiskPolicy
from gateway.retrieval.script import script_of
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
    """Permitted candidates, best first; ``dropped`` counts what the re-check took out.

    ``reranker`` is the version whose numbers order them, '' for the fused order; ``rerank_skipped`` says why
    a reranker that there is has not made it. ``hints`` are those of the question that one of them has.
    ``served_by`` is the path that read the vectors; ``fallback`` says why ``auto`` didn't take the other.
    """

    question: str
    candidates: tuple[Candidate, ...]
    dropped: Counter[str]
    statistics: TermStatistics
    reranker: str = ""
    rerank_skipped: str = ""
    hints: tuple[Hint, ...] = ()
    mode: Mode = Mode.AUTO
    served_by: Mode = Mode.SDK
    fallback: str | None = None

    @property
    def degraded(self) -> bool:
        """Whether the order is a makeshift: one that the release's thresholds want isn't one."""
        return self.rerank_skipped not in {"", RerankSkip.NOT_CALIBRATED.value}

    @property
    def refs(self) -> frozenset[DocumentRef]:
        return frozenset(candidate.ref for candidate in self.candidates)

    def evidence(self, passages: int) -> tuple[Evidence, ...]:
        """The first passages, numbered from 1. Of several documents that say the same word for word the best
        one speaks: copies add nothing and take the place of what does. Under another title or section the
        same words say something else.
        """
        distinct: dict[tuple[str, str, str], Candidate] = {}
        for candidate in self.candidates:
            chunk = candidate.chunk
            distinct.setdefault((chunk.content_hash, chunk.title, chunk.section), candidate)
        return tuple(
            Evidence(n, c.chunk, c.score, c.raw_score, c.score_label, c.hit_reason)
            for n, c in enumerate(list(distinct.values())[:passages], start=1)
        )

    def readable(self, trace: Trace, risk: RiskPolicy, max_sensitivity: int) -> "SearchResult":
        """What a model may read: it is cleared for it, and no risk keeps it back."""
        safe = [c for c in self.candidates if not risk.withholds(c.chunk.risk)]
        trace.note(withheld=len(self.candidates) - len(safe))
        cleared = tuple(c for c in safe if c.chunk.sensitivity <= max_sensitivity)
        return replace(self, candidates=cleared, hints=_shown(self.hints, cleared))

    def signals(self, evidence: Sequence[Evidence]) -> GateSignals:
        """What the gate looks at, over the passages that may leave as evidence."""
        used = {item.chunk.chunk_id for item in evidence}
        similarities = [c.similarity for c in self.candidates if c.chunk.chunk_id in used]
        ranked = [item.raw_score for item in evidence if item.score_label == RERANKED]
        passages = [ReadPassage.of(item.chunk) for item in evidence]
        wanted = Wanted.of(telling_terms(self.question), self.statistics)
        return GateSignals(
            candidates=len(evidence),
            expired=self.dropped[DropReason.EXPIRED.value],
            top_similarity=max(similarities, default=None),
            coverage=wanted.coverage(passages),
            missing_key_terms=len(missing_key_terms(self.question, [p.terms for p in passages])),
            reranker=self.reranker,
            sentence_coverage=wanted.sentence_coverage(passages),
            match=wanted.match(passages),
            rerank_score=max(ranked, default=None),
            script=script_of(self.question),
        )


def passage_terms(chunk: Chunk) -> frozenset[str]:
    return frozenset(terms_of(embedded_text(chunk.title, chunk.section, chunk.content)))


def _shown(hints: Iterable[Hint], candidates: Iterable[Candidate]) -> tuple[Hint, ...]:
    """Those that one of these passages has."""
    return shown(hints, (passage_terms(c.chunk) for c in candidates if c.hinted))


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
        reranking: Reranking | None = None,
        mode: Mode = Mode.AUTO,
    ) -> None:
        """``mode`` is that of whoever asks for none."""
        self._retriever = retriever
        self._reader = reader
        self._lexicon = lexicon
        self._recheck = recheck
        self._embedding = embedding
        self._retrieval = retrieval
        self._caps = caps
        self._reranking = reranking
        self._mode = mode
        #: for whoever judges what was found
        self.judging = Judging()

    async def run(
        self,
        context: RequestContext,
        trace: Trace,
        question: str,
        category: str | None = None,
        mode: Mode | None = None,
    ) -> SearchResult:
        """Raises Overloaded, DeadlineExceeded, Unavailable of whichever part failed; InvalidField for a mode
        that isn't installed.
        """
        mode = mode or self._mode
        self._retriever.expect(mode)
        query = ScopedQuery(context.scope, context.release, int(time.time()), category)
        deadline = context.deadline
        terms = tuple(dict.fromkeys(terms_of(question)))
        hints = hints_of(question)
        with trace.stage(Stage.RETRIEVE):
            with stage_time(deadline, "catalog", self._caps.catalog_ms) as stage:
                statistics = await self._lexicon.statistics(query, (*terms, *spellings_of(hints)), stage)
        hints = known(hints, statistics)
        hint_terms = spellings_of(hints)
        with trace.stage(Stage.EMBED), await self._embedding.acquire(deadline):
            with stage_time(deadline, "embedding", self._caps.embed_ms) as stage:
                vector = await self._retriever.embed(query, question, stage)
        with trace.stage(Stage.RETRIEVE), await self._retrieval.acquire(deadline):
            trace.hooks.retrieval()
            with stage_time(deadline, "retrieval", self._caps.retrieval_ms) as stage:
                found = await self._retriever.search(
                    query, question, vector, stage, mode=mode, hint_terms=hint_terms
                )
        kept, dropped = await self._permitted(context, trace, found)
        if found.cut and dropped.total() and len(kept) < self._caps.enough:
            # What was deleted or revoked since the build crowds out what is still there: look deeper.
            with trace.stage(Stage.RETRIEVE), await self._retrieval.acquire(deadline):
                with stage_time(deadline, "retrieval", self._caps.retrieval_ms) as stage:
                    found = await self._retriever.search(
                        query, question, vector, stage, mode=mode, hint_terms=hint_terms, deeper=_DEEPER
                    )
            kept, dropped = await self._permitted(context, trace, found)
        hints = _shown(hints, kept)
        for reason, count in dropped.items():
            for _ in range(count):
                trace.hooks.recheck_drop(reason)
        trace.note(candidates=len(found.candidates), permitted=len(kept))
        trace.note(hints=[hint.kind.value for hint in hints])
        trace.note(mode=mode.value, served_by=found.served_by.value, fallback=found.fallback)
        trace.hooks.retrieval_path(found.served_by.value, found.fallback)
        return SearchResult(
            question,
            kept,
            dropped,
            statistics,
            hints=hints,
            mode=mode,
            served_by=found.served_by,
            fallback=found.fallback,
        )

    async def rerank(
        self, context: RequestContext, trace: Trace, result: SearchResult, *, fitted_only: bool = True
    ) -> SearchResult:
        """Step 12, once the caller's permissions have been verified: passages may leave to an endpoint.

        ``fitted_only``: only by the reranker that the release's thresholds are fitted for.
        """
        if self._reranking is None:
            return result
        if fitted_only and self._reranking.version != context.release.config.reranker:
            ranked = Ranked(result.candidates, skipped=RerankSkip.NOT_CALIBRATED)
        else:
            ranked = await self._reranking.run(
                trace, result.question, result.candidates, result.statistics, context.deadline
            )
        if ranked.skipped is not None:
            trace.hooks.rerank_skip(ranked.skipped)
        skipped = "" if ranked.skipped is None else ranked.skipped.value
        trace.note(reranker=ranked.reranker, rerank_skipped=skipped)
        return replace(result, candidates=ranked.candidates, reranker=ranked.reranker, rerank_skipped=skipped)

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
        whole = len(kept) == len(found.candidates)
        return found.candidates if whole else self._retriever.fused(kept), dropped
