"""Neighbours: what stands right before and after a passage in the same section, joined to it as evidence.

The gate has judged by then, over what was found alone: a neighbour completes evidence and never makes it.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gateway.access.authorizer import DocumentRef, Recheck
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.answer.budget import estimate_tokens
from gateway.answer.evidence import Evidence
from gateway.context import RequestContext
from gateway.errors import DeadlineExceeded, Overloaded, Unavailable
from gateway.observe.hooks import Stage
from gateway.observe.trace import Trace
from gateway.retrieval.chunk import Chunk, chunk_id
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.retriever import belongs
from gateway.retrieval.risk import RiskPolicy
from gateway.retrieval.store import ChunkReader

#: what the blank line between two parts costs, in tokens
_JOINT_TOKENS = 1


@dataclass(frozen=True, slots=True)
class NeighbourLimits:
    """``reach`` is how many passages on each side, 0 for none; ``hits`` how many of the best pieces of
    evidence get them. Milliseconds each step may take, always inside the request's deadline.
    """

    reach: int
    hits: int
    retrieval_ms: int
    catalog_ms: int


@dataclass(frozen=True, slots=True)
class _Section:
    """One section of one document version, as it was split; only passages of the same one are joined."""

    document_id: str
    document_version: int
    parser_version: str
    splitter_version: str
    title: str
    section: str


@dataclass(frozen=True, slots=True)
class Completed:
    """Evidence with its neighbours; ``skipped`` says that they couldn't be looked for."""

    evidence: tuple[Evidence, ...]
    skipped: bool = False


#: passages by section and place
_Placed = dict[_Section, dict[int, Chunk]]


class Neighbours:
    """Fetches them through the forced filter and the re-check of the hit itself. Without them the evidence
    is what it was: a part that fails or is too slow is noted and left out.
    """

    def __init__(
        self,
        reader: ChunkReader,
        recheck: Recheck,
        retrieval: Bulkhead,
        limits: NeighbourLimits,
        risk: RiskPolicy,
    ) -> None:
        self._reader = reader
        self._recheck = recheck
        self._retrieval = retrieval
        self._limits = limits
        self._risk = risk

    async def join(
        self,
        context: RequestContext,
        trace: Trace,
        evidence: tuple[Evidence, ...],
        *,
        max_sensitivity: int,
        tokens: int,
    ) -> Completed:
        """The same passages, numbered anew from 1, with the permitted neighbours that no risk keeps back,
        that aren't too sensitive for whoever answers, and that fit into ``tokens``. Passages that touch
        become one, under the better one's scores.
        """
        if self._limits.reach == 0:
            return Completed(evidence)
        wanted = missing_ids(evidence[: self._limits.hits], evidence, self._limits.reach)
        found: tuple[Chunk, ...] = ()
        skipped = False
        try:
            if wanted and tokens > 0:
                found = await self._fetch(context, trace, wanted)
        except (Unavailable, Overloaded, DeadlineExceeded) as failure:
            skipped = True
            trace.note(neighbours_skipped=failure.code)
        safe = [chunk for chunk in found if not self._risk.withholds(chunk.risk)]
        around = [chunk for chunk in safe if chunk.sensitivity <= max_sensitivity]
        whole = joined(evidence, around, self._limits, tokens)
        trace.note(neighbours=sum(len(item.parts) for item in whole) - len(evidence))
        return Completed(whole, skipped)

    async def _fetch(self, context: RequestContext, trace: Trace, wanted: Sequence[str]) -> tuple[Chunk, ...]:
        """The permitted ones. Raises as the store and the catalog do, Overloaded, DeadlineExceeded."""
        query = ScopedQuery(context.scope, context.release, int(time.time()))
        with trace.stage(Stage.RETRIEVE), await self._retrieval.acquire(context.deadline):
            with stage_time(context.deadline, "retrieval", self._limits.retrieval_ms) as stage:
                found = await self._reader.fetch(query, wanted, stage)
        inside = [chunk for chunk in found if belongs(query, chunk)]
        refs = tuple({_ref(chunk) for chunk in inside})
        with trace.stage(Stage.RECHECK), stage_time(context.deadline, "catalog", self._limits.catalog_ms):
            verdicts = await self._recheck.check(context.scope, refs, time.time())
        return tuple(chunk for chunk in inside if verdicts[_ref(chunk)] is None)


def missing_ids(hits: Iterable[Evidence], evidence: Iterable[Evidence], reach: int) -> tuple[str, ...]:
    """The ids of passages within ``reach`` of a hit that are no evidence yet. A passage's own fields give
    its neighbours' ids; whether there are any is for the store to say.
    """
    here = {item.chunk.chunk_id for item in evidence}
    ids = (_id_at(item.chunk, place) for item in hits for place in _places(item.chunk, reach))
    return tuple(dict.fromkeys(found for found in ids if found not in here))


def joined(
    evidence: Sequence[Evidence], around: Iterable[Chunk], limits: NeighbourLimits, tokens: int
) -> tuple[Evidence, ...]:
    """Hits and neighbours as unbroken runs of their section, best first."""
    placed: _Placed = defaultdict(dict)
    for item in evidence:
        placed[_section(item.chunk)][item.chunk.chunk_index] = item.chunk
    _add(placed, evidence[: limits.hits], around, limits.reach, tokens)
    runs = {chunk.chunk_id: run for row in placed.values() for run in _runs(row) for chunk in run}
    best: dict[str, Evidence] = {}
    for item in evidence:
        best.setdefault(runs[item.chunk.chunk_id][0].chunk_id, item)
    return tuple(
        _whole(replace(item, n=n), runs[item.chunk.chunk_id]) for n, item in enumerate(best.values(), 1)
    )


def _add(placed: _Placed, hits: Iterable[Evidence], around: Iterable[Chunk], reach: int, tokens: int) -> None:
    """Neighbours of the best hits first, the nearer ones before the others, none across a gap."""
    there = {(_section(chunk), chunk.chunk_index): chunk for chunk in around}
    for item in hits:
        section, middle = _section(item.chunk), item.chunk.chunk_index
        for side in (1, -1):
            for place in range(middle + side, middle + side * (reach + 1), side):
                if place in placed[section]:
                    continue
                chunk = there.get((section, place))
                cost = 0 if chunk is None else estimate_tokens(chunk.content) + _JOINT_TOKENS
                if chunk is None or cost > tokens:
                    break
                placed[section][place] = chunk
                tokens -= cost


def _runs(row: Mapping[int, Chunk]) -> Iterator[tuple[Chunk, ...]]:
    run: list[Chunk] = []
    for place in sorted(row):
        if run and run[-1].chunk_index + 1 != place:
            yield tuple(run)
            run = []
        run.append(row[place])
    yield tuple(run)


def _whole(item: Evidence, run: Sequence[Chunk]) -> Evidence:
    middle = run.index(item.chunk)
    return replace(item, before=tuple(run[:middle]), after=tuple(run[middle + 1 :]))


def _places(chunk: Chunk, reach: int) -> Iterator[int]:
    for distance in range(1, reach + 1):
        yield chunk.chunk_index + distance
        if chunk.chunk_index >= distance:
            yield chunk.chunk_index - distance


def _id_at(chunk: Chunk, index: int) -> str:
    return chunk_id(
        chunk.tenant_id,
        chunk.kb_id,
        chunk.document_id,
        chunk.document_version,
        chunk.parser_version,
        chunk.splitter_version,
        index,
    )


def _section(chunk: Chunk) -> _Section:
    return _Section(
        chunk.document_id,
        chunk.document_version,
        chunk.parser_version,
        chunk.splitter_version,
        chunk.title,
        chunk.section,
    )


def _ref(chunk: Chunk) -> DocumentRef:
    return DocumentRef(chunk.document_id, chunk.document_version)
