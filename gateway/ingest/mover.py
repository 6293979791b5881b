"""The class mover: stored rows follow the ACL class that their document has by now."""

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from gateway.errors import Unavailable
from gateway.ingest.catalog import TaskStore, VersionStore
from gateway.ingest.governance import MoveStore
from gateway.ingest.objects import ObjectStore
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.rows import BATCH_ROWS, TermCounter, rows_of
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.ingest.vectors import VectorFiles
from gateway.retrieval.store import ChunkWriter, Row

_LAST_WORD_S = 5.0


class MoveWork:
    """Rewrites a document's rows under their own ids, one retained revision after the other.

    Classes are a pre-filter and the re-check decides, so nobody sees too much at any moment. Whoever may
    see the document can miss it while its rows are on their way. Stopped anywhere, another run does the
    same again: what was begun is kept in the catalog.
    """

    def __init__(
        self,
        tasks: TaskStore,
        moves: MoveStore,
        versions: VersionStore,
        objects: ObjectStore,
        writer: ChunkWriter,
    ) -> None:
        self._tasks = tasks
        self._moves = moves
        self._versions = versions
        self._objects = objects
        self._writer = writer

    async def run(self, claim: TaskClaim) -> Ending:
        moved = 0
        while plans := await self._moves.begin_moves(claim):
            for done, plan in enumerate(plans):
                still_ours = functools.partial(self._tasks.progress, claim, "moving", done, len(plans))
                terms = await self._rewrite(claim, plan, still_ours)
                await self._moves.finish_move(claim, plan, terms)
                moved += terms.passages
        return Ending(TaskState.SUCCEEDED, report={"moved": {"rows": moved}})

    async def _rewrite(
        self, claim: TaskClaim, plan: ReleasePlan, still_ours: Callable[[], Awaitable[None]]
    ) -> ClassTerms:
        """``still_ours`` raises StaleFence: it is asked right before each write, and after the last."""
        try:
            terms = await self._write(plan, still_ours)
            await self._writer.seal(plan.space, plan.kb_revision)
            await still_ours()
        except BaseException:
            # A worker that was frozen wakes up in the middle of a write, after another has moved the rows.
            with anyio.move_on_after(_LAST_WORD_S, shield=True), suppress(Unavailable):
                await self._moves.distrust_moves(claim)
            raise
        return terms

    async def _write(self, plan: ReleasePlan, still_ours: Callable[[], Awaitable[None]]) -> ClassTerms:
        """What was written, counted."""
        files = VectorFiles(self._objects, plan.space.dimension)
        counter = TermCounter()
        batch: list[Row] = []

        async def put() -> None:
            if batch:
                await still_ours()
                await self._writer.write(plan.space, plan.kb_revision, batch)
                batch.clear()

        async for row in rows_of(plan, plan.documents, self._objects, self._versions, files):
            counter.add(row)
            batch.append(row)
            if len(batch) >= BATCH_ROWS:
                await put()
        await put()
        return next(iter(counter.classes()), ClassTerms(plan.documents[0].acl_class, 0, {}))
