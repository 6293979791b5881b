"""The last look: permissions read fresh once more, right before something leaves."""

from collections.abc import Callable
from dataclasses import replace

from gateway.access.authorizer import Authorizer, DocumentRef
from gateway.access.scope import AccessScope
from gateway.admission.stage import stage_time
from gateway.answer.search import PermittedSearch
from gateway.context import RequestContext
from gateway.errors import PermissionsChanged


class Permissions:
    """Nothing leaves on an old word."""

    def __init__(
        self,
        authorizer: Authorizer,
        search: PermittedSearch,
        check_fresh: Callable[[], None],
        catalog_cap_ms: int,
    ) -> None:
        """``check_fresh`` raises when revocations can't be followed."""
        self._authorizer = authorizer
        self._search = search
        self._check_fresh = check_fresh
        self._cap_ms = catalog_cap_ms

    def check_fresh(self) -> None:
        """Raises RevocationFeedStale."""
        self._check_fresh()

    async def verify(self, context: RequestContext, refs: frozenset[DocumentRef]) -> AccessScope:
        """After a search: the scope as it is now. Raises what ``authorize`` raises, and PermissionsChanged
        when a document is no longer the caller's.
        """
        self._check_fresh()
        with stage_time(context.deadline, "catalog", self._cap_ms):
            scope = await self._authorizer.still_holds(context.principal, context.scope)
        fresh = replace(context, scope=scope)
        if scope is not context.scope and not await self.cover(fresh, refs):
            raise PermissionsChanged()
        return scope

    async def cover(self, context: RequestContext, refs: frozenset[DocumentRef]) -> bool:
        """Whether the caller may be shown every one of these documents now, by the catalog's word on each."""
        return not refs or await self._search.still_permitted(context, refs)
