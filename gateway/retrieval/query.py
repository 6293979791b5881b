"""ScopedQuery: the only thing a store accepts; it can't be built without scope and release."""

from dataclasses import dataclass

from gateway.access.scope import AccessScope
from gateway.errors import UnscopedAccess
from gateway.release.model import RetrievalRelease


@dataclass(frozen=True, slots=True)
class ScopedQuery:
    """The forced filter, as typed parts; an adapter turns all of it into its store's language.

    ``at`` is in whole seconds since the epoch. ``category`` narrows and never widens.
    """

    scope: AccessScope
    release: RetrievalRelease
    at: int
    category: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scope, AccessScope) or not isinstance(self.release, RetrievalRelease):
            raise UnscopedAccess("a query needs a scope and a release")
        if (self.scope.tenant, self.scope.kb_id) != (self.release.tenant, self.release.kb_id):
            raise UnscopedAccess("scope and release belong to different knowledge bases")

    @property
    def permitted_classes(self) -> tuple[int, ...]:
        return tuple(sorted(self.scope.permitted_classes))
