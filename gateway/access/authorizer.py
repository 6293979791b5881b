"""The authorizer: Principal + knowledge base name -> AccessScope. Fails closed."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gateway.access.apikey import ApiKey
from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, AclClass, permitted_classes
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import (
    AuthorizerUnavailable,
    KnowledgeBaseNotFound,
    KnowledgeBaseRequired,
    PrincipalRevoked,
)


@dataclass(frozen=True, slots=True)
class KnowledgeBaseStamp:
    """What changes when a knowledge base's permissions change."""

    kb_id: str
    name: str
    acl_revision: int


@dataclass(frozen=True, slots=True)
class TenantStamp:
    """One consistent read of a tenant: every request makes its own."""

    revocation_epoch: int
    incarnation: str
    knowledge_bases: tuple[KnowledgeBaseStamp, ...]


@dataclass(frozen=True, slots=True)
class RevocationSet:
    """A tenant's revocations in force, by kind; values are bare ids as revoked."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()
    knowledge_bases: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """One version of one document."""

    document_id: str
    document_version: int


@dataclass(frozen=True, slots=True)
class DocumentStanding:
    """The catalog's word on one document version. A chunk is permitted only when both ACLs permit.

    ``valid_from``/``valid_until`` are seconds since the epoch; None means unbounded.
    """

    document_acl: Acl
    version_acl: Acl
    deleted: bool
    revoked: bool
    withdrawn: bool
    sensitivity: int
    valid_from: float | None
    valid_until: float | None


class AccessCatalog(Protocol):
    """Authoritative permissions. Every method raises CatalogUnavailable when it can't answer."""

    async def tenant_stamp(self, tenant: str) -> TenantStamp:
        """Epoch 0 and no knowledge bases for a tenant that was never written to."""
        ...

    async def tenant_stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        """One read for all of them, made even for none; the feed's heartbeat."""
        ...

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        """The classes in use: live documents' own, and those that the active release still carries for
        documents whose ACL changed since, then narrowed to what both ACLs permit. A number may come twice.
        """
        ...

    async def revocations(self, tenant: str) -> RevocationSet: ...

    async def api_key(self, key_id: str) -> ApiKey | None:
        """As it is now; None when there is none."""
        ...

    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        """Only documents of this tenant and knowledge base; a missing key means there is none."""
        ...


class PrincipalSource(Protocol):
    """Which names a verified caller answers to; built in: the token's own."""

    async def names(self, principal: Principal) -> frozenset[str]:
        """Raises AuthorizerUnavailable when the source can't answer."""
        ...


class TokenPrincipals:
    """The built-in PrincipalSource: subject and groups as the token states them."""

    async def names(self, principal: Principal) -> frozenset[str]:
        return principal.names


class DropReason(StrEnum):
    """Why the re-check dropped a candidate."""

    FOREIGN = "foreign"  # the store returned a row that its filter should have kept out
    UNKNOWN = "unknown"
    DELETED = "deleted"
    REVOKED = "revoked"
    WITHDRAWN = "withdrawn"
    ACL = "acl"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"


class Recheck(Protocol):
    """The authoritative word on documents a search has found."""

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        """One entry for each ref: None = permitted. Raises CatalogUnavailable."""
        ...


def drop_reason(scope: AccessScope, standing: DocumentStanding | None, now: float) -> DropReason | None:
    """Why ``scope`` may not see this document version at ``now``; None when it may."""
    if standing is None:
        return DropReason.UNKNOWN
    if standing.deleted:
        return DropReason.DELETED
    if standing.revoked:
        return DropReason.REVOKED
    if standing.withdrawn:
        return DropReason.WITHDRAWN
    acls = (standing.document_acl, standing.version_acl)
    if not all(acl.permits(scope.principals, scope.denied_as) for acl in acls):
        return DropReason.ACL
    if standing.valid_until is not None and now >= standing.valid_until:
        return DropReason.EXPIRED
    if standing.valid_from is not None and now < standing.valid_from:
        return DropReason.NOT_YET_VALID
    return None


class CatalogRecheck:
    """The built-in Recheck: current ACL, accepted ACL, revocations and validity, read fresh."""

    def __init__(self, catalog: AccessCatalog) -> None:
        self._catalog = catalog

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        wanted = tuple(dict.fromkeys(refs))
        found = await self._catalog.standings(scope.tenant, scope.kb_id, wanted) if wanted else {}
        return {ref: drop_reason(scope, found.get(ref), now) for ref in wanted}


def still_current(scope: AccessScope, stamp: TenantStamp) -> bool:
    """Whether nothing of its tenant's rights has changed since ``scope`` was resolved."""
    same = (stamp.revocation_epoch, stamp.incarnation) == (scope.revocation_epoch, scope.incarnation)
    return same and any(
        kb.kb_id == scope.kb_id and kb.acl_revision == scope.acl_revision for kb in stamp.knowledge_bases
    )


class Authorizer:
    """Resolves scopes. The stamp is read fresh each time; ACL classes and revocations are kept by the
    revision and the epoch that name their state.
    """

    def __init__(self, catalog: AccessCatalog, principals: PrincipalSource | None = None) -> None:
        self._catalog = catalog
        self._principals = principals or TokenPrincipals()
        self._classes: dict[str, tuple[int, str, tuple[AclClass, ...]]] = {}
        self._revocations: dict[str, tuple[int, str, RevocationSet]] = {}

    async def authorize(
        self, principal: Principal, knowledge_base: str | None, stamp: TenantStamp | None = None
    ) -> AccessScope:
        """The caller's scope in the named knowledge base, or in their only permitted one; as of the ``stamp``
        of his tenant, when that was just read for several.

        Raises KnowledgeBaseNotFound (missing, foreign and forbidden look alike),
        KnowledgeBaseRequired, PrincipalRevoked, AuthorizerUnavailable, CatalogUnavailable.
        """
        scopes = await self._scopes(principal, knowledge_base, stamp)
        if not scopes:
            raise KnowledgeBaseNotFound()
        if len(scopes) > 1:
            raise KnowledgeBaseRequired(sorted(scope.knowledge_base for scope in scopes))
        return scopes[0]

    async def refuse_revoked(self, principal: Principal) -> None:
        """For acts that need no scope of a knowledge base: a revoked user is refused whatever token he
        brings. Raises PrincipalRevoked, CatalogUnavailable.
        """
        stamp = await self._catalog.tenant_stamp(principal.tenant)
        await self._refuse(principal, await self.revoked(principal.tenant, stamp))

    async def permitted(self, principal: Principal) -> list[AccessScope]:
        """Every knowledge base the caller may ask; may be empty."""
        return await self._scopes(principal, None)

    async def still_holds(self, principal: Principal, scope: AccessScope) -> AccessScope:
        """The same scope, or a fresh one when permissions changed; raises as ``authorize`` does."""
        if still_current(scope, await self._catalog.tenant_stamp(scope.tenant)):
            return scope
        return await self.authorize(principal, scope.knowledge_base)

    async def revoked(self, tenant: str, stamp: TenantStamp) -> RevocationSet:
        """What was in force at the stamp or later. Raises CatalogUnavailable."""
        known = self._revocations.get(tenant)
        if known is not None and known[:2] == (stamp.revocation_epoch, stamp.incarnation):
            return known[2]
        # Every revocation and every lift bumps the epoch; read after the stamp: at worst newer than it says.
        revoked = await self._catalog.revocations(tenant)
        self._revocations[tenant] = (stamp.revocation_epoch, stamp.incarnation, revoked)
        return revoked

    async def _scopes(
        self, principal: Principal, name: str | None, stamp: TenantStamp | None = None
    ) -> list[AccessScope]:
        if stamp is None:
            stamp = await self._catalog.tenant_stamp(principal.tenant)
        revoked = await self.revoked(principal.tenant, stamp)
        await self._refuse(principal, revoked)
        names = await self._principals.names(principal)
        denied_as = names & {f"group:{group}" for group in revoked.groups}
        names -= denied_as
        scopes = []
        for kb in stamp.knowledge_bases:
            if (name is not None and kb.name != name) or kb.name in revoked.knowledge_bases:
                continue
            classes = await self._classes_of(principal.tenant, stamp.incarnation, kb)
            permitted = permitted_classes(classes, names, denied_as)
            if len(permitted) > MAX_PERMITTED_CLASSES:
                raise AuthorizerUnavailable(
                    f"this caller is permitted more than {MAX_PERMITTED_CLASSES} ACL classes"
                )
            if permitted:
                scopes.append(
                    AccessScope(
                        tenant=principal.tenant,
                        kb_id=kb.kb_id,
                        knowledge_base=kb.name,
                        acl_revision=kb.acl_revision,
                        revocation_epoch=stamp.revocation_epoch,
                        incarnation=stamp.incarnation,
                        principals=names,
                        permitted_classes=permitted,
                        denied_as=denied_as,
                    )
                )
        return scopes

    async def _refuse(self, principal: Principal, revoked: RevocationSet) -> None:
        """Raises PrincipalRevoked for a revoked person, for what he made, and for a revoked key."""
        if not principal.accountable.isdisjoint(revoked.users):
            raise PrincipalRevoked()
        if principal.key_id is not None:
            # Read after the stamp: revoking a key raises the epoch, so what comes later is noticed.
            key = await self._catalog.api_key(principal.key_id)
            if key is None or key.revoked_at is not None:
                raise PrincipalRevoked()

    async def _classes_of(
        self, tenant: str, incarnation: str, kb: KnowledgeBaseStamp
    ) -> tuple[AclClass, ...]:
        known = self._classes.get(kb.kb_id)
        if known is not None and known[:2] == (kb.acl_revision, incarnation):
            return known[2]
        # Read after the stamp: at worst newer than the stamp says, and then read again next time.
        classes = await self._catalog.acl_classes(tenant, kb.kb_id)
        self._classes[kb.kb_id] = (kb.acl_revision, incarnation, classes)
        return classes
