"""Snapshots: what a release would take in now, and what differs from what one holds."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    union_all,
)

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    manifest,
    release_documents,
    revocations,
)
from gateway.ingest.plan import PlannedDocument
from gateway.ingest.version import ManifestEntry
from gateway.release.model import VersionState
from gateway.retrieval.risk import APPROVED, REJECTED, markers_of
from gateway.stream.revocation import RevocationKind

#: a person may keep a version out, and must let one in that is of high risk
may_be_released = or_(
    document_versions.c.approval == APPROVED,
    and_(document_versions.c.approval != REJECTED, document_versions.c.high_risk.is_(False)),
)
_newest = (
    select(document_versions.c.document_id, func.max(document_versions.c.version).label("version"))
    .join(documents, documents.c.document_id == document_versions.c.document_id)
    .where(
        documents.c.kb_id == bindparam("kb_id"),
        documents.c.deleted_at.is_(None),
        document_versions.c.state == VersionState.READY.value,
        document_versions.c.withdrawn_at.is_(None),
        may_be_released,
        ~exists(
            select(revocations.c.seq).where(
                revocations.c.tenant == documents.c.tenant,
                revocations.c.kind == RevocationKind.DOCUMENT.value,
                revocations.c.subject == documents.c.document_id,
                revocations.c.lifted_at.is_(None),
            )
        ),
    )
    .group_by(document_versions.c.document_id)
    .subquery()
)
_is_newest = and_(
    _newest.c.document_id == document_versions.c.document_id,
    _newest.c.version == document_versions.c.version,
)
_DOCUMENTS = (
    select(document_versions, documents.c.source, documents.c.acl_class.label("current_class"))
    .join(_newest, _is_newest)
    .join(documents, documents.c.document_id == document_versions.c.document_id)
)
_MANIFEST = (
    select(
        manifest.c.document_id,
        manifest.c.chunk_index,
        manifest.c.chunk_id,
        manifest.c.content_hash,
        manifest.c.text_hash,
    )
    .join(
        _newest,
        and_(_newest.c.document_id == manifest.c.document_id, _newest.c.version == manifest.c.version),
    )
    .order_by(manifest.c.document_id, manifest.c.chunk_index)
)
_now = (
    select(
        documents.c.document_id,
        document_versions.c.version,
        documents.c.acl_class,
        document_versions.c.approval,
    )
    .join(document_versions, document_versions.c.document_id == documents.c.document_id)
    .join(_newest, _is_newest)
)
_held = select(
    release_documents.c.document_id,
    release_documents.c.version,
    release_documents.c.acl_class,
    release_documents.c.approval,
).where(release_documents.c.release_id == bindparam("release_id"))
_both = union_all(_now, _held).subquery()
_CHANGED = (
    select(_both.c.document_id)
    .group_by(_both.c.document_id, _both.c.version, _both.c.acl_class, _both.c.approval)
    .having(func.count() == 1)  # what both have comes twice
    .distinct()
)


def documents_of(
    connection: Connection, kb_id: str, document_ids: Sequence[str] | None = None
) -> list[PlannedDocument]:
    """What a release would take in now; of these documents only, when they are given."""
    entries: dict[str, list[ManifestEntry]] = defaultdict(list)
    named = {"kb_id": kb_id}
    for document_id, *entry in connection.execute(_only(_MANIFEST, manifest, document_ids), named):
        entries[document_id].append(ManifestEntry(*entry))
    rows = connection.execute(_only(_DOCUMENTS, document_versions, document_ids), named)
    return [planned_document(row, tuple(entries[row.document_id])) for row in rows]


def _only(statement: Select[Any], table: Table, document_ids: Sequence[str] | None) -> Select[Any]:
    return statement if document_ids is None else statement.where(table.c.document_id.in_(document_ids))


def changed_since(connection: Connection, kb_id: str, release_id: str) -> list[str]:
    """Documents that a release made now would hold otherwise than this one does, or not at all."""
    named = {"kb_id": kb_id, "release_id": release_id}
    return list(connection.execute(_CHANGED, named).scalars())


def planned_document(row: Row[Any], entries: tuple[ManifestEntry, ...]) -> PlannedDocument:
    """``row``: a version with its document's ``source`` and ``current_class``."""
    return PlannedDocument(
        ref=DocumentRef(row.document_id, row.version),
        source=row.source,
        media_type=row.media_type,
        original_key=row.original_key,
        title=row.title,
        uri=row.uri,
        category=row.category,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        sensitivity=row.sensitivity,
        author=row.author,
        approval=row.approval,
        risk=markers_of(json.loads(row.risk), row.approval),
        acl_class=row.current_class,
        parser_version=row.parser_version,
        splitter_version=row.splitter_version,
        chunks_key=row.chunks_key,
        manifest=entries,
    )
