"""The work of import and release tasks, as a worker does it."""

from gateway.ingest.pipeline import ImportPipeline
from gateway.ingest.releaser import Releaser
from gateway.ingest.task import Ending, TaskClaim, TaskState


class ImportWork:
    """Builds a task's documents; with ``activate`` also the release that shows them."""

    def __init__(self, pipeline: ImportPipeline, releaser: Releaser) -> None:
        self._pipeline = pipeline
        self._releaser = releaser

    async def run(self, claim: TaskClaim) -> Ending:
        rejected = await self._pipeline.run(claim)
        if claim.activate and (claim.allow_partial or not rejected):
            await self._releaser.build_and_activate(claim)
        if rejected:
            detail = f"{rejected} of the documents can't be imported"
            return Ending(TaskState.FAILED, "documents_failed", detail)
        return Ending(TaskState.SUCCEEDED)


class ReleaseWork:
    """Builds a release of what is live, for somebody to activate."""

    def __init__(self, releaser: Releaser) -> None:
        self._releaser = releaser

    async def run(self, claim: TaskClaim) -> Ending:
        await self._releaser.build(claim)
        return Ending(TaskState.SUCCEEDED)
