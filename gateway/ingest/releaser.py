"""The releaser: builds a snapshot release, validates it, activates it, takes revisions away."""

from contextlib import suppress
from dataclasses import replace

import anyio

from gateway.errors import GatewayError, NotFound, PrincipalRevoked, ReleaseConflict, StaleFence, Unavailable
from gateway.ingest.building import DocumentParser
from gateway.ingest.catalog import ReleaseStore, TaskStore, VersionStore
from gateway.ingest.embedding import TextVectors
from gateway.ingest.filling import Filling
from gateway.ingest.objects import ObjectStore
from gateway.ingest.passages import Rebuilder
from gateway.ingest.plan import Activation, ReleasePlan
from gateway.ingest.task import TaskClaim
from gateway.ingest.validator import Validator
from gateway.release.model import ReleaseRecord, ReleaseState, RetrievalConfig
from gateway.retrieval.store import ChunkWriter

_BUILD_TRIES = 3


class Releaser:
    """One embedding space, retrieval config and model adapter: those this process builds with."""

    def __init__(
        self,
        tasks: TaskStore,
        releases: ReleaseStore,
        versions: VersionStore,
        objects: ObjectStore,
        parser: DocumentParser,
        writer: ChunkWriter,
        validator: Validator,
        vectors: TextVectors,
        config: RetrievalConfig,
        model: str = "",
    ) -> None:
        self._tasks = tasks
        self._releases = releases
        self._versions = versions
        self._objects = objects
        self._writer = writer
        self._validator = validator
        self._vectors = vectors
        self._space = vectors.space
        self._config = config
        self._model = model
        self._rebuild = Rebuilder(objects, parser).rebuild

    async def build(self, claim: TaskClaim) -> str:
        """The id of a READY release of what is live now, or of the active one when nothing changed.

        What an earlier attempt of the task made READY is taken as it is. A failed build leaves no row
        behind and the active release as it was; vectors that it made are kept for the next one.
        """
        ready = await self._ready_before(claim)
        if ready is not None:
            return ready
        await self._writer.prepare(self._space)
        plan = await self._releases.begin_release(claim, self._space, self._config, self._model)
        if plan.unchanged_release is not None:
            return plan.unchanged_release
        await self._sweep(plan)
        try:
            await self._fill(claim, plan)
        except StaleFence:
            # Whoever has the task now builds a revision of his own, and nobody will come back to this one.
            with suppress(Unavailable):  # else the reclaim of what failed drops it
                await self._writer.drop(plan.space, plan.kb_revision)
            raise
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
        """A release that an earlier attempt of this task built as this process would, and that nobody has
        activated or reclaimed.
        """
        if claim.release_id is None:
            return None
        release = await self._releases.release(claim.tenant, claim.release_id)
        if release is None or release.state is not ReleaseState.READY:
            return None
        as_built = (release.space_id, release.config, release.model)
        today = (self._space.space_id, self._config, self._model)
        return release.release_id if as_built == today else None

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
        except (ReleaseConflict, PrincipalRevoked):
            release = await self._releases.release(claim.tenant, release_id)
            if release is not None and release.state is ReleaseState.READY:  # it lost: nobody will want it
                await self.reclaim(claim.tenant, release_id)
            raise
        return activation

    async def _fill(self, claim: TaskClaim, plan: ReleasePlan) -> None:
        filling = Filling(
            claim,
            plan,
            tasks=self._tasks,
            versions=self._versions,
            objects=self._objects,
            vectors=self._vectors,
            rebuild=self._rebuild,
        )
        async for batch in filling.batches():
            await self._writer.write(plan.space, plan.kb_revision, batch)
        await self._releases.store_terms(claim, plan.kb_revision, filling.terms.classes())
        await self._writer.seal(plan.space, plan.kb_revision)
        await self._tasks.progress(claim, "validating", 0, 1)
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.VALIDATING)
        read = await self._validator.validate(plan, filling.written, filling.samples, filling.terms)
        barrier = {**read, "vectors": dict(filling.vectors)}
        await self._releases.advance_release(claim, plan.release_id, ReleaseState.READY, barrier=barrier)
