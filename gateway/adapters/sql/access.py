"""Permissions as the catalog knows them: stamps, standings. The hot reads of a question."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, and_, bindparam, func, select

from gateway.access.authorizer import (
    DocumentRef,
    DocumentStanding,
    KnowledgeBaseStamp,
    RevocationSet,
    TenantStamp,
)
from gateway.adapters.sql.rows import acl_from, batches, padded
from gateway.adapters.sql.tables import (
    acl_classes,
    document_versions,
    documents,
    knowledge_bases,
    meta,
    revocations,
    tenants,
)
from gateway.errors import CatalogUnavailable
from gateway.stream.revocation import RevocationKind

INCARNATION = "incarnation"

# Statements are built once: SQLAlchemy then finds their compiled form by identity.
_STAMP = (
    select(
        meta.c.value,
        tenants.c.tenant,
        tenants.c.revocation_epoch,
        knowledge_bases.c.kb_id,
        knowledge_bases.c.name,
        knowledge_bases.c.acl_revision,
    )
    .select_from(
        meta.outerjoin(tenants, tenants.c.tenant.in_(bindparam("tenants", expanding=True))).outerjoin(
            knowledge_bases, knowledge_bases.c.tenant == tenants.c.tenant
        )
    )
    .where(meta.c.key == INCARNATION)
)
_IN_FORCE = select(revocations.c.tenant, revocations.c.kind, revocations.c.subject).where(
    revocations.c.tenant.in_(bindparam("tenants", expanding=True)), revocations.c.lifted_at.is_(None)
)
_document_class = acl_classes.alias("document_class")
_version_class = acl_classes.alias("version_class")
_STANDINGS = (
    select(
        document_versions.c.document_id,
        document_versions.c.version,
        _document_class.c.allow,
        _document_class.c.deny,
        _version_class.c.allow,
        _version_class.c.deny,
        func.coalesce(documents.c.deleted_at, document_versions.c.deleted_at),
        revocations.c.revocation_id,
        document_versions.c.withdrawn_at,
        document_versions.c.sensitivity,
        document_versions.c.valid_from,
        document_versions.c.valid_until,
    )
    .select_from(
        document_versions.join(documents, documents.c.document_id == document_versions.c.document_id)
        .join(
            _document_class,
            and_(
                _document_class.c.kb_id == documents.c.kb_id,
                _document_class.c.number == documents.c.acl_class,
            ),
        )
        .join(
            _version_class,
            and_(
                _version_class.c.kb_id == documents.c.kb_id,
                _version_class.c.number == document_versions.c.acl_class,
            ),
        )
        .outerjoin(
            revocations,
            and_(
                revocations.c.tenant == documents.c.tenant,
                revocations.c.kind == RevocationKind.DOCUMENT.value,
                revocations.c.subject == documents.c.document_id,
                revocations.c.lifted_at.is_(None),
            ),
        )
    )
    .where(
        documents.c.document_id.in_(bindparam("ids", expanding=True)),
        document_versions.c.version.in_(bindparam("versions", expanding=True)),
        documents.c.tenant == bindparam("tenant"),
        documents.c.kb_id == bindparam("kb_id"),
    )
)


def tenant_stamps(connection: Connection, names: Sequence[str]) -> Mapping[str, TenantStamp]:
    """One for each tenant; knowledge bases by name, in order of code points."""
    rows = connection.execute(_STAMP, {"tenants": padded(names)}).all()
    if not rows:
        raise CatalogUnavailable("the catalog has no incarnation")
    incarnation = rows[0][0]
    epochs: dict[str, int] = {}
    kbs: dict[str, list[KnowledgeBaseStamp]] = {name: [] for name in names}
    for _, tenant, epoch, kb_id, name, revision in rows:
        epochs[tenant] = epoch
        if kb_id is not None:
            kbs[tenant].append(KnowledgeBaseStamp(kb_id, name, revision))
    return {
        name: TenantStamp(
            revocation_epoch=epochs.get(name, 0),
            incarnation=incarnation,
            knowledge_bases=tuple(sorted(kbs[name], key=lambda kb: kb.name)),
        )
        for name in names
    }


def revocation_sets(connection: Connection, names: Sequence[str]) -> Mapping[str, RevocationSet]:
    """What is in force in each of the tenants."""
    found: dict[str, dict[str, set[str]]] = {
        name: {kind.value: set() for kind in RevocationKind} for name in names
    }
    for tenant, kind, subject in connection.execute(_IN_FORCE, {"tenants": padded(names)}):
        found[tenant][kind].add(subject)
    return {
        name: RevocationSet(
            users=frozenset(subjects[RevocationKind.USER]),
            groups=frozenset(subjects[RevocationKind.GROUP]),
            documents=frozenset(subjects[RevocationKind.DOCUMENT]),
            knowledge_bases=frozenset(subjects[RevocationKind.KNOWLEDGE_BASE]),
        )
        for name, subjects in found.items()
    }


def in_force(connection: Connection, tenant: str) -> RevocationSet:
    return revocation_sets(connection, (tenant,))[tenant]


def standings(
    connection: Connection, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
) -> Mapping[DocumentRef, DocumentStanding]:
    found: dict[DocumentRef, DocumentStanding] = {}
    for batch in batches(refs):
        wanted = set(batch)
        asked = {
            "tenant": tenant,
            "kb_id": kb_id,
            "ids": list({ref.document_id for ref in batch}),
            "versions": list({ref.document_version for ref in batch}),
        }
        for document_id, version, *rest in connection.execute(_STANDINGS, asked):
            ref = DocumentRef(document_id, version)
            if ref in wanted:
                found[ref] = _standing(*rest)
    return found


def _standing(
    allow: str,
    deny: str,
    version_allow: str,
    version_deny: str,
    deleted_at: float | None,
    revocation_id: str | None,
    withdrawn_at: float | None,
    sensitivity: int,
    valid_from: int | None,
    valid_until: int | None,
) -> DocumentStanding:
    return DocumentStanding(
        document_acl=acl_from(allow, deny),
        version_acl=acl_from(version_allow, version_deny),
        deleted=deleted_at is not None,
        revoked=revocation_id is not None,
        withdrawn=withdrawn_at is not None,
        sensitivity=sensitivity,
        valid_from=valid_from,
        valid_until=valid_until,
    )
