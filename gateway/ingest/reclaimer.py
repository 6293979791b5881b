"""The reclaimer: revisions whose time is over and objects that nobody refers to are taken away."""

import time
from collections.abc import Callable, Sequence

import anyio

from gateway.errors import DeadlineExceeded, StaleFence, Unavailable
from gateway.ingest.catalog import TaskStore
from gateway.ingest.objects import ObjectStore
from gateway.ingest.references import CHUNKS, ORIGINALS, VECTORS, ReclaimPolicy, ReclaimStore
from gateway.ingest.removal import Removal
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.observe.logging import get_logger
from gateway.retrieval.store import ChunkWriter

#: condemned in one transaction: each is asked about by itself, and a revocation waits
_BATCH = 25
#: sweeps of the object store within its grace
_SWEEPS = 4


class ReclaimWork:
    """The catalog first, so that nobody goes back to a revision whose rows are being dropped."""

    def __init__(
        self, tasks: TaskStore, reclaims: ReclaimStore, writer: ChunkWriter, policy: ReclaimPolicy
    ) -> None:
        self._tasks = tasks
        self._reclaims = reclaims
        self._writer = writer
        self._policy = policy

    async def run(self, claim: TaskClaim) -> Ending:
        revisions = await self._reclaims.begin_reclaim(claim, self._policy)
        for done, revision in enumerate(revisions):
            await self._tasks.progress(claim, "dropping revisions", done, len(revisions))
            await self._writer.drop(revision.space, revision.kb_revision)
            await self._reclaims.swept(claim, revision)
        return Ending(TaskState.SUCCEEDED, report={"dropped": {"revisions": len(revisions)}})


class ObjectSweep:
    """Objects that have lain for ``grace_s`` and that nothing refers to: of uploads that were never
    accepted, of attempts that ended half-way, of versions that no release holds any more.
    """

    def __init__(
        self,
        objects: ObjectStore,
        removal: Removal,
        grace_s: float,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` gives seconds since the epoch, near enough to the store's for a grace of hours."""
        self._objects = objects
        self._removal = removal
        self._grace_s = grace_s
        self._clock = clock

    @property
    def every_s(self) -> float:
        return self._grace_s / _SWEEPS

    async def run(self) -> int:
        """How many were taken away. Raises Unavailable; the next sweep goes on."""
        taken = 0
        for folder in (ORIGINALS, CHUNKS, VECTORS):
            old: list[str] = []
            async for found in self._objects.list(folder):
                if found.modified <= self._clock() - self._grace_s:
                    old.append(found.key)
                if len(old) >= _BATCH:
                    taken += await self._take_away(old)
                    old = []
            taken += await self._take_away(old)
        return taken

    async def _take_away(self, keys: Sequence[str]) -> int:
        return len((await self._removal.take_away(keys)).condemned)


class ReclaimSchedule:
    """Runs beside every worker: what is due becomes a task once, and one of them looks for stray objects."""

    def __init__(
        self,
        reclaims: ReclaimStore,
        removal: Removal,
        sweep: ObjectSweep,
        policy: ReclaimPolicy,
        *,
        poll_s: float,
        deadline_s: float,
    ) -> None:
        """``deadline_s``: how long a task may take."""
        self._reclaims = reclaims
        self._removal = removal
        self._sweep = sweep
        self._policy = policy
        self._poll_s = poll_s
        self._deadline_s = deadline_s
        self._log = get_logger("ingest.reclaim")

    async def run(self) -> None:
        """A step now and then, until cancelled; not at once: a process that has just started is busy."""
        while True:
            await anyio.sleep(self._poll_s)
            try:
                await self.step()
            except (Unavailable, DeadlineExceeded, StaleFence) as error:
                self._log.warning("reclaim.failed", code=error.code)

    async def step(self) -> None:
        """Raises Unavailable."""
        made = await self._reclaims.schedule_reclaims(self._policy, self._deadline_s)
        if made:
            self._log.info("reclaim.scheduled", tasks=made)
        await self._removal.finish()
        if await self._reclaims.claim_sweep(self._sweep.every_s):
            self._log.info("reclaim.swept", objects=await self._sweep.run())
