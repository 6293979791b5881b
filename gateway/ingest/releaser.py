"""The releaser: builds a snapshot release, validates it, activates it, takes revisions away."""

from gateway.errors import GatewayError, NotFound, ReleaseConflict
from gateway.ingest.catalog import (
    Activation,
    ObjectStore,
    ReleasePlan,
    ReleaseStore,
    TaskStore,
    VersionStore,
)
from gateway.ingest.rows import TermCounter, rows_of
from gateway.ingest.task import TaskClaim
from gateway.ingest.validator import Validator, spread
from gateway.ingest.vectors import VectorFiles
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig
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

        A failed build leaves no row behind and the active release as it was.
        """
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
            await self.reclaim(claim.tenant, plan.release_id)
            raise
        return plan.release_id

    async def _sweep(self, plan: ReleasePlan) -> None:
        """Rows of builds that failed without being able to clean up after themselves."""
        for release in await self._releases.releases(plan.tenant, plan.knowledge_base):
            if release.state is ReleaseState.FAILED:
                await self.reclaim(plan.tenant, release.release_id)

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
            await self._writer.drop(self._space, release.kb_revision)
            await self._releases.mark_reclaimed(tenant, release_id)
        else:  # somebody may roll back to it: close that door first
            await self._releases.mark_reclaimed(tenant, release_id)
            await self._writer.drop(self._space, release.kb_revision)

    async def _activate_built(self, claim: TaskClaim) -> Activation:
        release_id = await self.build(claim)
        await self._tasks.progress(claim, "activating", 0, 1)
        return await self._releases.activate(claim.tenant, release_id, None)

    async def _fill(self, claim: TaskClaim, plan: ReleasePlan) -> None:
        written, samples = await self._write(claim, plan)
        await self._writer.seal(self._space, plan.kb_revision)
        await self._tasks.progress(claim, "validating", 0, 1)
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.VALIDATING)
        barrier = await self._validator.validate(plan, written, samples)
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.READY, barrier=barrier)

    async def _write(self, claim: TaskClaim, plan: ReleasePlan) -> tuple[int, list[Row]]:
        files = VectorFiles(self._objects, self._space.dimension)
        terms = TermCounter()
        batch: list[Row] = []
        firsts: list[Row] = []
        written = 0
        for done, document in enumerate(plan.documents):
            await self._tasks.progress(claim, "indexing", done, len(plan.documents))
            first = True
            async for row in rows_of(plan, document, self._objects, self._versions, files):
                terms.add(row)
                batch.append(row)
                if first:
                    firsts.append(row)
                    first = False
                if len(batch) >= _WRITE_BATCH:
                    await self._writer.write(self._space, plan.kb_revision, batch)
                    written += len(batch)
                    batch = []
        if batch:
            await self._writer.write(self._space, plan.kb_revision, batch)
            written += len(batch)
        await self._releases.store_terms(claim, plan.kb_revision, terms.classes())
        return written, spread(firsts)
