"""Permissions and revocations of the in-memory catalog."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gateway.access.authorizer import (
    DocumentRef,
    DocumentStanding,
    KnowledgeBaseStamp,
    RevocationSet,
    TenantStamp,
)
from gateway.access.classes import AclClass
from gateway.adapters.memory.catalog_rows import CatalogRows, DocumentRow, VersionRow, fresh_id
from gateway.errors import InvalidField, KnowledgeBaseNotFound, NotFound
from gateway.stream.revocation import RevocationKind, RevocationNews, RevocationRecord


class AccessRows(CatalogRows):
    """``AccessCatalog`` and ``RevocationCatalog``."""

    async def tenant_stamp(self, tenant: str) -> TenantStamp:
        return TenantStamp(
            revocation_epoch=self._epochs.get(tenant, 0),
            incarnation=self._incarnation,
            knowledge_bases=tuple(
                KnowledgeBaseStamp(kb.kb_id, kb.name, kb.acl_revision)
                for kb in sorted(self._knowledge_bases.values(), key=lambda kb: kb.name)
                if kb.tenant == tenant
            ),
        )

    async def tenant_stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        return {tenant: await self.tenant_stamp(tenant) for tenant in tenants}

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        kb = self._kb(tenant, kb_id)
        return () if kb is None else self._classes_in_use(kb)

    async def revocations(self, tenant: str) -> RevocationSet:
        return RevocationSet(
            users=self._revoked(tenant, RevocationKind.USER),
            groups=self._revoked(tenant, RevocationKind.GROUP),
            documents=self._revoked(tenant, RevocationKind.DOCUMENT),
            knowledge_bases=self._revoked(tenant, RevocationKind.KNOWLEDGE_BASE),
        )

    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        revoked = self._revoked(tenant, RevocationKind.DOCUMENT)
        found = {}
        for ref in refs:
            document = self._document(tenant, ref.document_id)
            if document is None or document.kb_id != kb_id:
                continue
            if 1 <= ref.document_version <= len(document.versions):
                found[ref] = _standing(document, self._version(ref), document.document_id in revoked)
        return found

    async def revoke(
        self, tenant: str, kind: RevocationKind, subject: str, reason: str, revoked_by: str
    ) -> RevocationRecord:
        if kind is RevocationKind.KNOWLEDGE_BASE and self._kb_named(tenant, subject) is None:
            raise KnowledgeBaseNotFound()
        if kind is RevocationKind.DOCUMENT and self._document(tenant, subject) is None:
            raise NotFound()
        for record in self._revocations.values():
            same = (record.tenant, record.kind, record.subject) == (tenant, kind, subject)
            if same and record.lifted_at is None:
                return record
        made = RevocationRecord(
            revocation_id=fresh_id(),
            tenant=tenant,
            kind=kind,
            subject=subject,
            reason=reason,
            revoked_by=revoked_by,
            revocation_epoch=self._bump_epoch(tenant),
            created_at=self._clock(),
            lifted_at=None,
        )
        self._revocations[made.revocation_id] = made
        self._note(
            "revocation",
            tenant=tenant,
            kind=kind.value,
            subject=subject,
            reason=reason,
            revoked_by=revoked_by,
            at=made.created_at,
            revocation_id=made.revocation_id,
        )
        return made

    async def revocations_since(
        self, tenant: str, epoch: int, documents: Collection[DocumentRef] = ()
    ) -> RevocationNews:
        records = [r for r in self._revocations.values() if r.tenant == tenant and r.lifted_at is None]
        deletions = {ref: self._deleted_at(tenant, ref) for ref in documents}
        return RevocationNews(
            self._clock(),
            tuple(r for r in records if r.revocation_epoch > epoch),
            {ref: deleted_at for ref, deleted_at in deletions.items() if deleted_at is not None},
        )

    def _deleted_at(self, tenant: str, ref: DocumentRef) -> float | None:
        document = self._document(tenant, ref.document_id)
        if document is None or not 1 <= ref.document_version <= len(document.versions):
            return None
        return self._version(ref).deleted_at

    async def list_revocations(
        self, tenant: str, *, limit: int | None = None, before: str | None = None
    ) -> list[RevocationRecord]:
        found = [record for record in reversed(self._revocations.values()) if record.tenant == tenant]
        if before is not None:
            places = [record.revocation_id for record in found]
            if before not in places:
                raise InvalidField("before is the id of a revocation of this tenant")
            found = found[places.index(before) + 1 :]
        return found[:limit]

    async def lift(self, tenant: str, revocation_id: str) -> RevocationRecord:
        record = self._revocations.get(revocation_id)
        if record is None or record.tenant != tenant:
            raise NotFound()
        if record.lifted_at is not None:
            return record
        self._bump_epoch(tenant)
        lifted = replace(record, lifted_at=self._clock())
        self._revocations[revocation_id] = lifted
        of = {"kind": record.kind.value, "subject": record.subject, "at": lifted.lifted_at}
        self._note("lift", tenant=tenant, revocation_id=revocation_id, **of)
        return lifted


def _standing(document: DocumentRow, version: VersionRow, revoked: bool) -> DocumentStanding:
    return DocumentStanding(
        document_acl=document.acl,
        version_acl=version.document.acl,
        deleted=document.deleted or version.deleted_at is not None,
        revoked=revoked,
        withdrawn=version.withdrawn,
        sensitivity=version.document.sensitivity,
        valid_from=version.validity[0],
        valid_until=version.validity[1],
    )
