"""Mending: a revision's rows written again, while documents may be moving to another class beside it.

A move writes a document's rows and says so afterwards. Whoever writes what the catalog said before would
put the old class back, and nobody would know. So the catalog is asked right before, and until it agrees
with what was written.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from gateway.ingest.plan import ReleasePlan
from gateway.keeping.catalog import KeptCatalog
from gateway.keeping.refilling import Refill

#: a move takes seconds; one whose worker has died is taken over within a minute or two
_TRIES = 600
_PAUSE_S = 1.0


class Mending:
    """``pause`` waits between two looks at a move that is under way; seconds."""

    def __init__(
        self,
        catalog: KeptCatalog,
        filling: Refill,
        *,
        pause: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._catalog = catalog
        self._filling = filling
        self._pause = pause

    async def is_whole(self, release_id: str) -> bool:
        """By what the catalog says now; of rows that are moving only their number can be told.

        Raises InvariantViolated, NotFound when an object is gone, Unavailable.
        """
        moving = await self._is_moving(release_id)
        plan = await self._catalog.plan(release_id)
        expected = await self._filling.expected(plan)
        if moving:
            return await self._filling.stored(plan) == expected.rows
        return await self._filling.is_whole(plan, expected)

    async def mend(self, release_id: str) -> bool:
        """Leaves the revision whole; False when a document is moving. Raises as ``Refill.ensure`` does."""
        if await self._is_moving(release_id):
            return False
        plan = await self._catalog.plan(release_id)
        await self._filling.ensure(plan)
        return await self._agrees(plan)

    async def _agrees(self, written: ReleasePlan) -> bool:
        """Follows whatever the catalog has changed since; False when a move doesn't end."""
        for _ in range(_TRIES):
            moving = await self._is_moving(written.release_id)  # first: a move that ends is in the plan then
            plan = await self._catalog.plan(written.release_id)
            if plan.documents != written.documents:
                await self._follow(written, plan)
                written = plan
            elif not moving:
                return True
            else:
                await self._pause(_PAUSE_S)
        return False

    async def _follow(self, written: ReleasePlan, plan: ReleasePlan) -> None:
        """Rows of documents that have another class by now, or are gone."""
        before, after = ({one.ref: one for one in p.documents} for p in (written, plan))
        for ref in before.keys() - after.keys():
            await self._filling.remove(plan, ref.document_id)
        changed = tuple(one for one in plan.documents if before.get(one.ref) != one)
        await self._filling.write(replace(plan, documents=changed))

    async def _is_moving(self, release_id: str) -> bool:
        return any(one.moving for one in await self._catalog.retained() if one.release_id == release_id)
