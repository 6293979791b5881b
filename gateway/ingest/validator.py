"""The validator: a built revision is read back as questions will read it, before it may be READY.

A reader whose ``consistency`` lets it be a little behind its writes is asked again, for a bounded time,
until it shows what was sealed. The others show it at once.
"""

import functools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import anyio

from gateway.access.classes import CLASS_OF_NOBODY
from gateway.access.scope import AccessScope
from gateway.context import Deadline
from gateway.errors import InvariantViolated
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.rows import TermCounter
from gateway.retrieval.chunk import stable_hash
from gateway.retrieval.query import ScopedQuery
from gateway.retrieval.store import IMMEDIATE, ChunkReader, ChunkWriter, Row

_SAMPLES = 8
_READ_CAP_MS = 10_000
_NEAR = 0.999
_ASKED_TERMS = 8
#: passages that have a rare word; and how many classes are counted
_RARE = 32
_CLASSES = 32
#: twice the five seconds that Bounded reads of a Milvus server may be behind
_SETTLE_S = 10.0
_SETTLE_PAUSE_S = 0.1


class Validator:
    """Counts, class by class too, fetches and searches through the production reader and its forced filter.

    ``clock`` and ``pause`` are in seconds.
    """

    def __init__(
        self,
        reader: ChunkReader,
        writer: ChunkWriter,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._pause = pause

    async def validate(
        self, plan: ReleasePlan, rows: int, samples: Sequence[Row], counted: TermCounter | None = None
    ) -> dict[str, object]:
        """The barrier record. ``counted`` is what was counted of all rows while they were written.

        Raises InvariantViolated when the revision isn't what was written.
        """
        stored = await self._writer.count(plan.space, plan.kb_revision)
        if stored != rows:
            raise InvariantViolated(f"{rows} rows were written and {stored} are stored")
        consistency = self._reader.consistency
        settled_by = self._clock() + (0 if consistency == IMMEDIATE else _SETTLE_S)
        repeats = 0
        read = [row for row in samples if row.chunk.acl_class != CLASS_OF_NOBODY]  # the rest no scope reads
        for row in read:
            rarest = counted.rarest(row) if counted else None
            repeats += await self._settle(functools.partial(self._check, plan, row, rarest), settled_by)
        classes = _some_classes(counted)
        for acl_class, valid in classes.items():
            query = ScopedQuery(
                _reader_scope(plan, acl_class), plan.as_release(), counted.at if counted else 0
            )
            repeats += await self._settle(functools.partial(self._check_class, query, valid), settled_by)
        return {
            "rows": stored,
            "classes": {str(acl_class): valid for acl_class, valid in classes.items()},
            "collection": plan.space.collection,
            "client": type(self._reader).__name__,
            "consistency": consistency,
            "repeats": repeats,
            "samples": [row.chunk.chunk_id for row in read],
            "validated_at": time.time(),
        }

    async def _settle(self, check: Callable[[], Awaitable[None]], settled_by: float) -> int:
        """Checks until it passes; how many times that had to be repeated."""
        repeats = 0
        while True:
            try:
                await check()
            except InvariantViolated:
                if self._clock() >= settled_by:
                    raise
            else:
                return repeats
            repeats += 1
            await self._pause(_SETTLE_PAUSE_S)

    async def _check(self, plan: ReleasePlan, row: Row, rarest: tuple[str, int] | None) -> None:
        """One row by its id, with every field at its place, by its vector and by its words."""
        chunk = row.chunk
        query = ScopedQuery(_reader_scope(plan, chunk.acl_class), plan.as_release(), _moment(row))
        if await self._reader.fetch(query, [chunk.chunk_id], _soon()) != [chunk]:
            raise InvariantViolated("a sampled chunk reads back differently")
        if stable_hash(chunk.content) != chunk.content_hash:
            raise InvariantViolated("a sampled chunk's text isn't what its manifest names")
        near = await self._reader.dense(query, row.vector, _SAMPLES, _soon())
        if not any(hit.score >= _NEAR for hit in near) and any(row.vector):
            raise InvariantViolated("a sampled chunk can't be found by its own vector")
        await self._check_words(query, row, rarest)

    async def _check_words(self, query: ScopedQuery, row: Row, rarest: tuple[str, int] | None) -> None:
        """By a word that few passages have the row itself is found; by common ones, some row."""
        asked = tuple(dict.fromkeys(row.terms))[:_ASKED_TERMS]
        if asked and not await self._reader.lexical(query, asked, _SAMPLES, _soon()):
            raise InvariantViolated("a sampled chunk can't be found by its own words")
        if rarest is None or rarest[1] > _RARE:
            return
        hits = await self._reader.lexical(query, [rarest[0]], 2 * _RARE, _soon())
        if all(hit.chunk.chunk_id != row.chunk.chunk_id for hit in hits):
            raise InvariantViolated("a sampled chunk isn't among the few that have its rarest word")

    async def _check_class(self, query: ScopedQuery, valid: int) -> None:
        if await self._reader.permitted(query, _soon()) != valid:
            raise InvariantViolated("a class reads back with another number of passages")


def _some_classes(counted: TermCounter | None) -> Mapping[int, int]:
    """How many valid passages classes have: of many classes some, evenly spread."""
    found = counted.valid.items() if counted else ()
    valid = sorted(pair for pair in found if pair[0] != CLASS_OF_NOBODY)
    step = max(1, len(valid) // _CLASSES)
    return dict(valid[::step][:_CLASSES])


def sample_positions(rows: int) -> frozenset[int]:
    """Which of so many rows are read back: up to eight, evenly spread."""
    samples = min(rows, _SAMPLES)
    return frozenset(i * rows // samples for i in range(samples))


def _soon() -> Deadline:
    return Deadline.after(_READ_CAP_MS)


def _moment(row: Row) -> int:
    """A moment at which the row is valid, as near to now as it gets."""
    now = int(time.time())
    return min(max(now, row.chunk.valid_from), row.chunk.valid_until - 1)


def _reader_scope(plan: ReleasePlan, acl_class: int) -> AccessScope:
    """The validator's own scope: exactly the class of the row it reads."""
    return AccessScope(
        tenant=plan.tenant,
        kb_id=plan.kb_id,
        knowledge_base=plan.knowledge_base,
        acl_revision=0,
        revocation_epoch=plan.revocation_epoch,
        incarnation="validator",
        principals=frozenset({"validator"}),
        permitted_classes=frozenset({acl_class}),
    )
