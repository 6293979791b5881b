"""The rights behind a running answer: whether they still hold, and what is told of those that don't."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gateway.access.authorizer import (
    AccessCatalog,
    Authorizer,
    DocumentRef,
    DropReason,
    Recheck,
    RevocationSet,
    TenantStamp,
)
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import (
    Forbidden,
    GatewayError,
    NotFound,
    PermissionsChanged,
    PrincipalRevoked,
    TokenExpired,
)
from gateway.stream.protocol import Revoked
from gateway.stream.revocation import RevocationCatalog, RevocationKind, RevocationNews

#: verdicts that end a running answer; a version that was only replaced or ran out stays its evidence
_ENDING = frozenset(
    {DropReason.REVOKED, DropReason.ACL, DropReason.DELETED, DropReason.UNKNOWN, DropReason.FOREIGN}
)
#: the order in which the client is told of several
_FIRST_TOLD = (
    RevocationKind.USER,
    RevocationKind.KNOWLEDGE_BASE,
    RevocationKind.DOCUMENT,
    RevocationKind.GROUP,
)
_GROUP = "group:"
_ACL_CHANGED = "acl_changed"
_TOKEN_EXPIRED = "token_expired"  # noqa: S105 - a reason, no secret


@dataclass(frozen=True, slots=True)
class Claim:
    """What one answer rests on: who asks, as whom he was let in, and the documents in its evidence."""

    principal: Principal
    scope: AccessScope
    documents: frozenset[DocumentRef]

    @property
    def subjects(self) -> Mapping[RevocationKind, frozenset[str]]:
        """Whose revocation is about this claim."""
        names = self.scope.principals
        return {
            RevocationKind.USER: self.principal.accountable,
            RevocationKind.GROUP: frozenset(
                name.removeprefix(_GROUP) for name in names if name.startswith(_GROUP)
            ),
            RevocationKind.DOCUMENT: frozenset(ref.document_id for ref in self.documents),
            RevocationKind.KNOWLEDGE_BASE: frozenset({self.scope.knowledge_base}),
        }

    def named_in(self, revoked: RevocationSet) -> bool:
        """Whether a revocation in force is about this claim."""
        in_force = {
            RevocationKind.USER: revoked.users,
            RevocationKind.GROUP: revoked.groups,
            RevocationKind.DOCUMENT: revoked.documents,
            RevocationKind.KNOWLEDGE_BASE: revoked.knowledge_bases,
        }
        return any(not mine.isdisjoint(in_force[kind]) for kind, mine in self.subjects.items())


@dataclass(frozen=True, slots=True)
class Loss:
    """The event that ends the answer and the error that stands for it before the stream.

    ``accepted_at``: when the database accepted it, on this process's monotonic clock; None where that isn't
    written down.
    """

    event: Revoked
    error: GatewayError
    accepted_at: float | None = None


class Rights:
    """Reads everything fresh. Its methods raise Unavailable of whichever part can't answer."""

    def __init__(
        self,
        catalog: AccessCatalog,
        revocations: RevocationCatalog,
        authorizer: Authorizer,
        recheck: Recheck,
        *,
        leeway_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``leeway_s``: how long after its end a token is still believed; ``clock``: its clock, seconds since
        the epoch.
        """
        self._catalog = catalog
        self._revocations = revocations
        self._authorizer = authorizer
        self._recheck = recheck
        self._leeway_s = leeway_s
        self._clock = clock

    def expired(self, principal: Principal) -> Loss | None:
        """The end of his token, once its verifier wouldn't take it any more; an API key has no leeway."""
        leeway_s = self._leeway_s if principal.key_id is None else 0
        if self._clock() < principal.expires_at + leeway_s:
            return None
        return Loss(Revoked(_TOKEN_EXPIRED, principal.expires_at), TokenExpired())

    async def stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        """One statement for all of them."""
        return await self._catalog.tenant_stamps(tenants)

    async def revoked(self, tenant: str) -> RevocationSet:
        """What is in force."""
        return await self._catalog.revocations(tenant)

    async def check(self, claim: Claim) -> AccessScope | Loss:
        """The scope as it is now while it covers the documents of the claim."""
        try:
            fresh = await self._authorizer.still_holds(claim.principal, claim.scope)
        except (Forbidden, NotFound) as error:
            return await self._loss(claim, error)
        verdicts = await self._recheck.check(fresh, tuple(claim.documents), self._clock())
        if _ENDING.isdisjoint(verdicts.values()):
            return fresh
        return await self._loss(claim, PermissionsChanged())

    async def _loss(self, claim: Claim, error: GatewayError) -> Loss:
        asked_at = time.monotonic()
        scope = claim.scope
        stamp = await self._catalog.tenant_stamp(scope.tenant)
        # a restored catalog counts its epochs anew
        since = scope.revocation_epoch if stamp.incarnation == scope.incarnation else -1
        documents = claim.subjects[RevocationKind.DOCUMENT]
        news = await self._revocations.revocations_since(scope.tenant, since, documents)
        reason, accepted = _to_blame(news, claim)
        if accepted is None and isinstance(error, PrincipalRevoked):
            reason, accepted = RevocationKind.USER.value, await self._key_revoked_at(claim.principal)
        if accepted is None:
            return Loss(Revoked(reason, news.now), error)
        return Loss(Revoked(reason, accepted), error, asked_at - max(0.0, news.now - accepted))

    async def _key_revoked_at(self, principal: Principal) -> float | None:
        key = None if principal.key_id is None else await self._catalog.api_key(principal.key_id)
        return None if key is None else key.revoked_at


def _to_blame(news: RevocationNews, claim: Claim) -> tuple[str, float | None]:
    """The reason that the client is told, and when that was accepted. Whatever no revocation and no deletion
    explains was a change of an ACL; when it came isn't written down.
    """
    mine = claim.subjects
    hits = [(r.kind, r.created_at) for r in news.records if r.subject in mine[r.kind]]
    hits += [(RevocationKind.DOCUMENT, deleted_at) for deleted_at in news.deletions.values()]
    if not hits:
        return _ACL_CHANGED, None
    kind, accepted = min(hits, key=lambda hit: _FIRST_TOLD.index(hit[0]))
    return kind.value, accepted
