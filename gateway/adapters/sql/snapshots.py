"""Snapshots: what a release would take in now, and what differs from what one holds."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Subquery,
    Table,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    union_all,
    update,
)

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    knowledge_bases,
    manifest,
    release_documents,
    revocations,
    tenants,
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


def _newest_of(*among: ColumnElement[bool]) -> Subquery:
    """The version of each document that a release would take in."""
    return (
        select(document_versions.c.document_id, func.max(document_versions.c.version).label("version"))
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(
            *among,
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


def _documents_in(newest: Subquery) -> Select[Any]:
    return (
        select(document_versions, documents.c.source, documents.c.acl_class.label("current_class"))
        .select_from(newest)
        .join(document_versions, _is(newest, document_versions))
        .join(documents, documents.c.document_id == document_versions.c.document_id)
    )


def _manifest_in(newest: Subquery) -> Select[Any]:
    return (
        select(
            manifest.c.document_id,
            manifest.c.chunk_index,
            manifest.c.chunk_id,
            manifest.c.content_hash,
            manifest.c.text_hash,
        )
        .select_from(newest)
        .join(manifest, _is(newest, manifest))
        .order_by(manifest.c.document_id, manifest.c.chunk_index)
    )


def _is(newest: Subquery, table: Table) -> ColumnElement[bool]:
    return and_(newest.c.document_id == table.c.document_id, newest.c.version == table.c.version)


_newest = _newest_of()
_SOME = _newest_of(documents.c.document_id.in_(bindparam("document_ids", expanding=True)))
_ALL_OF = (_documents_in(_newest), _manifest_in(_newest))
_SOME_OF = (_documents_in(_SOME), _manifest_in(_SOME))
_now = (
    select(
        documents.c.document_id,
        document_versions.c.version,
        documents.c.acl_class,
        document_versions.c.approval,
    )
    .join(document_versions, document_versions.c.document_id == documents.c.document_id)
    .join(_newest, _is(_newest, document_versions))
)
_STAMP = (
    select(
        knowledge_bases.c.ready_count,
        knowledge_bases.c.judged_count,
        knowledge_bases.c.acl_revision,
        knowledge_bases.c.release_sequence,
        tenants.c.revocation_epoch,
    )
    .join(tenants, tenants.c.tenant == knowledge_bases.c.tenant)
    .where(knowledge_bases.c.kb_id == bindparam("kb_id"))
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
    whole, passages = _ALL_OF if document_ids is None else _SOME_OF
    named = {"kb_id": kb_id} if document_ids is None else {"kb_id": kb_id, "document_ids": document_ids}
    entries: dict[str, list[ManifestEntry]] = defaultdict(list)
    for document_id, *entry in connection.execute(passages, named):
        entries[document_id].append(ManifestEntry(*entry))
    return [
        planned_document(row, tuple(entries[row.document_id])) for row in connection.execute(whole, named)
    ]


def changed_since(connection: Connection, kb_id: str, release_id: str) -> list[str]:
    """Documents that a release made now would hold otherwise than this one does, or not at all."""
    named = {"kb_id": kb_id, "release_id": release_id}
    return list(connection.execute(_CHANGED, named).scalars())


@dataclass(frozen=True, slots=True)
class Stamp:
    """As long as none of these has risen, a release made now would hold what it would have held before:
    whatever becomes of a version, a document or its ACL raises one in the same transaction.
    """

    ready_count: int
    judged_count: int
    acl_revision: int
    release_sequence: int
    revocation_epoch: int


def count_judged(connection: Connection, kb_id: str) -> None:
    """A build that has looked already looks again. No reader of what is active has to."""
    connection.execute(
        update(knowledge_bases)
        .where(knowledge_bases.c.kb_id == kb_id)
        .values(judged_count=knowledge_bases.c.judged_count + 1)
    )


def stamp_of(connection: Connection, kb_id: str) -> Stamp:
    return Stamp(*connection.execute(_STAMP, {"kb_id": kb_id}).one())


@dataclass(frozen=True, slots=True)
class Look:
    """What had changed since a release when somebody looked beside the writer, which takes long."""

    release_id: str | None
    stamp: Stamp
    changed: Sequence[str]


def look(connection: Connection, kb_id: str, release_id: str | None) -> Look:
    stamp = stamp_of(connection, kb_id)  # first: what changes after it raises it
    changed = () if release_id is None else changed_since(connection, kb_id, release_id)
    return Look(release_id, stamp, changed)


def look_at_active(connection: Connection, kb_id: str) -> Look:
    active = select(knowledge_bases.c.active_release_id).where(knowledge_bases.c.kb_id == kb_id)
    return look(connection, kb_id, connection.execute(active).scalar_one())


def changed_by_now(connection: Connection, kb_id: str, release_id: str, seen: Look) -> Sequence[str]:
    """As ``changed_since``, from what was seen while that still holds."""
    if (seen.release_id, seen.stamp) == (release_id, stamp_of(connection, kb_id)):
        return seen.changed
    return changed_since(connection, kb_id, release_id)


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
