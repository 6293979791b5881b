"""The releaser: builds a snapshot release, validates it, activates it, takes revisions away."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import anyio

from gateway.errors import GatewayError, NotFound, ReleaseConflict, Unavailable
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.objects import ObjectStore
from gateway.ingest.plan import Activation, PlannedDocument, ReleasePlan
from gateway.ingest.rows import TermCounter, rows_of
from gateway.ingest.task import TaskClaim
from gateway.ingest.validator import Validator, sample_positions
from gateway.ingest.vectors import VectorFiles
from gateway.release.model import EmbeddingSpace, ReleaseRecord, ReleaseState, RetrievalConfig
from gateway.retrieval.store import ChunkWriter, Row

_WRITE_BATCH = 500
_BUILD_TRIES = 3


class Releaser:
    """One embedding space and retrieval config: those this process builds with."""

    def __init__(
        self,
        tasks: TaskStore,
        releases: ReleaseStore,
        versions: VersionStore,
        objects: ObjectStore,
        writer: ChunkWriter,
        validator: Validator,
        space: EmbeddingSpace,
        config: RetrievalConfig,
    ) -> None:
        self._tasks = tasks
        self._releases = releases
        self._versions = versions
        self._objects = objects
        self._writer = writer
        self._validator = validator
        self._space = space
        self._config = config

    async def build(self, claim: TaskClaim) -> str:
        """The id of a READY release of what is live now, or of the active one when nothing changed.

        What an earlier attempt of the task made READY is taken as it is. A failed build leaves no row
        behind and the active release as it was.
        """
        ready = await self._ready_before(claim)
        if ready is not None:
            return ready
        await self._writer.prepare(self._space)
        plan = await self._releases.begin_release(claim, self._space, self._config)
        if plan.unchanged_release is not None:
            return plan.unchanged_release
        await self._sweep(plan)
        try:
            await self._fill(claim, plan)
        except GatewayError as error:
            await self._releases.advance_release(
                claim, plan.release_id, ReleaseState.FAILED, error=error.code
            )
            with suppress(Unavailable):  # the next build's sweep tries again
                await self.reclaim(claim.tenant, plan.release_id)
            raise
        return plan.release_id

    async def build_and_activate(self, claim: TaskClaim) -> Activation:
        """Builds again when the catalog moved on meanwhile; raises ReleaseConflict after three."""
        for _ in range(_BUILD_TRIES - 1):
            try:
                return await self._activate_built(claim)
            except ReleaseConflict:
                continue
        return await self._activate_built(claim)

    async def reclaim(self, tenant: str, release_id: str) -> None:
        """Takes a revision's rows away for good. Raises NotFound, IllegalTransition for the active one."""
        release = await self._releases.release(tenant, release_id)
        if release is None:
            raise NotFound()
        if release.state is ReleaseState.FAILED:  # nobody reads it: if this stops here, do it again
            await self._drop(release)
            await self._releases.mark_reclaimed(tenant, release_id)
        else:  # somebody may activate it or roll back to it: close that door first
            await self._releases.mark_reclaimed(tenant, release_id)
            await self._drop(release)

    async def _drop(self, release: ReleaseRecord) -> None:
        """The release may be of another space than this process builds; a collection is named by its id."""
        await self._writer.drop(replace(self._space, space_id=release.space_id), release.kb_revision)

    async def _ready_before(self, claim: TaskClaim) -> str | None:
        """A release that an earlier attempt of this task built and nobody has activated or reclaimed."""
        if claim.release_id is None:
            return None
        release = await self._releases.release(claim.tenant, claim.release_id)
        if release is None or release.state is not ReleaseState.READY:
            return None
        return release.release_id if release.space_id == self._space.space_id else None

    async def _sweep(self, plan: ReleasePlan) -> None:
        """Rows of builds that failed without being able to clean up after themselves."""
        for release in await self._releases.releases(plan.tenant, plan.knowledge_base):
            if release.state is ReleaseState.FAILED:
                await self.reclaim(plan.tenant, release.release_id)

    async def _activate_built(self, claim: TaskClaim) -> Activation:
        release_id = await self.build(claim)
        await self._tasks.progress(claim, "activating", 0, 1)
        try:
            # Shielded: what was activated must not end as a cancelled task.
            with anyio.CancelScope(shield=True):
                activation = await self._releases.activate(claim.tenant, release_id, None, claim)
        except ReleaseConflict:
            release = await self._releases.release(claim.tenant, release_id)
            if release is not None and release.state is ReleaseState.READY:  # it lost: nobody will want it
                await self.reclaim(claim.tenant, release_id)
            raise
        return activation

    async def _fill(self, claim: TaskClaim, plan: ReleasePlan) -> None:
        written, samples = await self._write(claim, plan)
        await self._writer.seal(self._space, plan.kb_revision)
        await self._tasks.progress(claim, "validating", 0, 1)
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.VALIDATING)
        barrier = await self._validator.validate(plan, written, samples)
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.READY, barrier=barrier)

    async def _write(self, claim: TaskClaim, plan: ReleasePlan) -> tuple[int, list[Row]]:
        """How many rows were written, and the ones among them to read back."""
        files = VectorFiles(self._objects, self._space.dimension)
        terms = TermCounter()
        wanted = sample_positions(sum(len(document.manifest) for document in plan.documents))
        samples: list[Row] = []
        batch: list[Row] = []
        written = 0
        for done, group in _groups(plan.documents):
            await self._tasks.progress(claim, "indexing", done, len(plan.documents))
            async for row in rows_of(plan, group, self._objects, self._versions, files):
                terms.add(row)
                if written + len(batch) in wanted:
                    samples.append(row)
                batch.append(row)
                if len(batch) >= _WRITE_BATCH:
                    await self._writer.write(self._space, plan.kb_revision, batch)
                    written += len(batch)
                    batch = []
        if batch:
            await self._writer.write(self._space, plan.kb_revision, batch)
            written += len(batch)
        await self._releases.store_terms(claim, plan.kb_revision, terms.classes())
        return written, samples


def _groups(documents: Sequence[PlannedDocument]) -> Iterator[tuple[int, list[PlannedDocument]]]:
    """Runs of documents with about a batch of rows, each with the number of documents before it."""
    group: list[PlannedDocument] = []
    rows = 0
    for number, document in enumerate(documents, start=1):
        group.append(document)
        rows += len(document.manifest)
        if rows >= _WRITE_BATCH or number == len(documents):
            yield number - len(group), group
            group, rows = [], 0
