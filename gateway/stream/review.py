"""A review: many claims of one tenant, judged with few questions."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import anyio
import anyio.abc

from gateway.access.authorizer import DocumentRef, DropReason, TenantStamp, still_current
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import Forbidden, GatewayError, NotFound, PermissionsChanged
from gateway.stream.rights import Claim, Loss, Lost, Query, Rights, ends
from gateway.stream.together import Together

#: the scope as it is now while it covers the documents of the claim; the error with which nobody could tell
Finding = AccessScope | Loss | GatewayError


class Review:
    """Each asker is resolved once in each knowledge base, and what the catalog says of all their documents
    is read in one statement. A part that fails, or hangs, concerns its own claims only.
    """

    def __init__(
        self,
        rights: Rights,
        stamp: TenantStamp,
        places: anyio.CapacityLimiter,
        tasks: anyio.abc.TaskGroup,
        tell: Callable[[Claim, Finding], None],
    ) -> None:
        """``stamp`` was read after the claims were made; ``places`` bound what is asked at once, in
        ``tasks``; ``tell`` gets each claim once, as soon as it is known.
        """
        self._rights = rights
        self._stamp = stamp
        self._places = places
        self._tasks = tasks
        self._tell = tell
        self._verdicts = Together(rights.verdicts, tasks, places)
        self._losses = Together(rights.losses, tasks, places)

    def begin(self, claims: Collection[Claim]) -> None:
        """The tasks are over when every claim was told of."""
        askers: dict[tuple[Principal, str], list[Claim]] = defaultdict(list)
        for claim in claims:
            if still_current(claim.scope, self._stamp):
                self._tell(claim, claim.scope)  # it was bound meanwhile
            else:
                askers[claim.principal, claim.scope.knowledge_base].append(claim)
        for own in askers.values():
            self._tasks.start_soon(self._judge, own)

    async def _judge(self, claims: Sequence[Claim]) -> None:
        """Those of one asker in one knowledge base."""
        try:
            found = await self._found(claims)
        except GatewayError as error:
            found = dict.fromkeys(claims, error)
        for claim, finding in found.items():
            self._tell(claim, finding)

    async def _found(self, claims: Sequence[Claim]) -> Mapping[Claim, Finding]:
        asker, knowledge_base = claims[0].principal, claims[0].scope.knowledge_base
        try:
            async with self._places:
                scope = await self._rights.scope(asker, knowledge_base, self._stamp)
        except (Forbidden, NotFound) as error:
            return await self._lost(claims, error)
        verdicts = await self._verdicts_on(Query(scope, frozenset().union(*(c.documents for c in claims))))
        lost = [claim for claim in claims if ends(claim, verdicts)]
        return {**dict.fromkeys(claims, scope), **await self._lost(lost, PermissionsChanged())}

    async def _verdicts_on(self, query: Query) -> Mapping[DocumentRef, DropReason | None]:
        if not self._rights.one_by_one:
            return (await self._verdicts.ask([query]))[0]
        async with self._places:
            return (await self._rights.verdicts([query]))[0]

    async def _lost(self, claims: Sequence[Claim], error: GatewayError) -> Mapping[Claim, Finding]:
        if not claims:
            return {}
        losses = await self._losses.ask([Lost(claim, error) for claim in claims])
        return dict(zip(claims, losses, strict=True))
