"""The rights behind a running answer: whether they still hold, and what is told of those that don't."""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.access.authorizer import (
    AccessCatalog,
    Authorizer,
    DocumentRef,
    DropReason,
    Recheck,
    RevocationSet,
    TenantStamp,
    drop_reason,
)
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import GatewayError, PrincipalRevoked, TokenExpired
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


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """What one answer rests on: who asks, as whom he was let in, and the documents in its evidence. Each is
    equal to itself only.
    """

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


@dataclass(frozen=True, slots=True)
class Query:
    """Documents on which a verdict is wanted, for a scope."""

    scope: AccessScope
    documents: frozenset[DocumentRef]


@dataclass(frozen=True, slots=True)
class Lost:
    """A claim that doesn't hold any more, and the error that said so."""

    claim: Claim
    error: GatewayError


class Rights:
    """Reads everything fresh. Its methods raise Unavailable of whichever part can't answer."""

    def __init__(
        self,
        catalog: AccessCatalog,
        revocations: RevocationCatalog,
        authorizer: Authorizer,
        recheck: Recheck | None = None,
        *,
        leeway_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``recheck``: somebody else's word on documents, who is asked for one scope at a time; None is the
        catalog's own, which answers for all of them in one statement. ``leeway_s``: how long after its end a
        token is still believed; ``clock``: its clock, seconds since the epoch.
        """
        self._catalog = catalog
        self._revocations = revocations
        self._authorizer = authorizer
        self._recheck = recheck
        self._leeway_s = leeway_s
        self._clock = clock

    def expired(self, principal: Principal) -> Loss | None:
        """The end of his token, once its verifier wouldn't take it any more."""
        if not principal.expired(self._clock(), self._leeway_s):
            return None
        return Loss(Revoked(_TOKEN_EXPIRED, principal.expires_at), TokenExpired())

    async def stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        """One statement for all of them."""
        return await self._catalog.tenant_stamps(tenants)

    async def stamp(self, tenant: str) -> TenantStamp:
        return await self._catalog.tenant_stamp(tenant)

    async def revoked(self, tenant: str, stamp: TenantStamp) -> RevocationSet:
        """What was in force at the stamp or later."""
        return await self._authorizer.revoked(tenant, stamp)

    async def scope(self, principal: Principal, knowledge_base: str, stamp: TenantStamp) -> AccessScope:
        """As of the stamp or later. Raises Forbidden or NotFound when there is none any more."""
        return await self._authorizer.authorize(principal, knowledge_base, stamp)

    @property
    def one_by_one(self) -> bool:
        """Whether verdicts are best asked for one scope at a time."""
        return self._recheck is not None

    async def verdicts(self, queries: Sequence[Query]) -> Sequence[Mapping[DocumentRef, DropReason | None]]:
        """One answer for each query, one verdict in it for each of its documents; None = permitted."""
        now = self._clock()
        if self._recheck is not None:
            return [await self._recheck.check(q.scope, tuple(q.documents), now) for q in queries]
        wanted: dict[tuple[str, str], set[DocumentRef]] = defaultdict(set)
        for query in queries:
            wanted[query.scope.tenant, query.scope.kb_id] |= query.documents
        found = {
            place: await self._catalog.standings(*place, tuple(refs))
            for place, refs in wanted.items()
            if refs
        }
        return [
            {
                ref: drop_reason(q.scope, found[q.scope.tenant, q.scope.kb_id].get(ref), now)
                for ref in q.documents
            }
            for q in queries
        ]

    async def losses(self, lost: Sequence[Lost]) -> Sequence[Loss]:
        """What each is told, of one tenant all of them."""
        asked_at = time.monotonic()
        tenant = lost[0].claim.scope.tenant
        stamp = await self._catalog.tenant_stamp(tenant)
        documents = {ref for one in lost for ref in one.claim.documents}
        earliest = min(_since(one.claim, stamp) for one in lost)
        news = await self._revocations.revocations_since(tenant, earliest, documents)
        revoked = [one.claim for one in lost if isinstance(one.error, PrincipalRevoked)]
        keys = await self._keys_revoked_at(claim.principal.key_id for claim in revoked)
        return [_loss(one, _since(one.claim, stamp), news, keys, asked_at) for one in lost]

    async def _keys_revoked_at(self, key_ids: Iterable[str | None]) -> Mapping[str | None, float | None]:
        """Of each key once; an answer without one has nothing to blame here."""
        known: dict[str | None, float | None] = {None: None}
        for key_id in {key_id for key_id in key_ids if key_id is not None}:
            key = await self._catalog.api_key(key_id)
            known[key_id] = None if key is None else key.revoked_at
        return known


def _loss(
    lost: Lost,
    since: int,
    news: RevocationNews,
    keys: Mapping[str | None, float | None],
    asked_at: float,
) -> Loss:
    reason, accepted = _to_blame(news, lost.claim, since)
    if accepted is None and isinstance(lost.error, PrincipalRevoked):
        reason, accepted = RevocationKind.USER.value, keys[lost.claim.principal.key_id]
    if accepted is None:
        return Loss(Revoked(reason, news.now), lost.error)
    return Loss(Revoked(reason, accepted), lost.error, asked_at - max(0.0, news.now - accepted))


def ends(claim: Claim, verdicts: Mapping[DocumentRef, DropReason | None]) -> bool:
    """Whether an answer may not go on; a document without a verdict isn't permitted."""
    return not _ENDING.isdisjoint(verdicts.get(ref, DropReason.UNKNOWN) for ref in claim.documents)


def _since(claim: Claim, stamp: TenantStamp) -> int:
    """The epoch as of which it held; a restored catalog counts its epochs anew."""
    return claim.scope.revocation_epoch if stamp.incarnation == claim.scope.incarnation else -1


def _to_blame(news: RevocationNews, claim: Claim, since: int) -> tuple[str, float | None]:
    """The reason that the client is told, and when that was accepted. Whatever no revocation after ``since``
    and no deletion explains was a change of an ACL; when it came isn't written down.
    """
    mine = claim.subjects
    hits = [
        (r.kind, r.created_at)
        for r in news.records
        if r.revocation_epoch > since and r.subject in mine[r.kind]
    ]
    hits += [
        (RevocationKind.DOCUMENT, deleted_at)
        for ref, deleted_at in news.deletions.items()
        if ref in claim.documents
    ]
    if not hits:
        return _ACL_CHANGED, None
    kind, accepted = min(hits, key=lambda hit: _FIRST_TOLD.index(hit[0]))
    return kind.value, accepted
