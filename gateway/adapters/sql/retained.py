"""What is kept beside the catalog because of it: versions of live documents, revisions of releases."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Subquery, and_, select

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql import snapshots
from gateway.adapters.sql.references import is_needed
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    embedding_spaces,
    knowledge_bases,
    manifest,
    release_documents,
)
from gateway.adapters.sql.tables import releases as releases_table
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.version import ManifestEntry
from gateway.keeping.catalog import RetainedRelease
from gateway.release.model import EmbeddingSpace, ReleaseState

#: after every moment that the catalog may hold
_NEVER = 1e18
_RETAINED = (ReleaseState.ACTIVE.value, ReleaseState.RETIRED.value, ReleaseState.READY.value)
_BUILDING = (ReleaseState.PENDING.value, ReleaseState.BUILDING.value, ReleaseState.VALIDATING.value)

_RELEASE = (
    select(
        releases_table,
        knowledge_bases.c.name.label("knowledge_base"),
        embedding_spaces.c.model,
        embedding_spaces.c.dimension,
        embedding_spaces.c.text_form,
    )
    .join(knowledge_bases, knowledge_bases.c.kb_id == releases_table.c.kb_id)
    .join(embedding_spaces, embedding_spaces.c.space_id == releases_table.c.space_id)
)
_HELD_VERSION = and_(
    document_versions.c.document_id == release_documents.c.document_id,
    document_versions.c.version == release_documents.c.version,
)
#: a release's live documents as its rows have them, which may be older than what the catalog says by now
_HELD: Select[Any] = (
    select(
        *(column for column in document_versions.c if column.name != "approval"),
        release_documents.c.approval,
        documents.c.source,
        release_documents.c.acl_class.label("current_class"),
    )
    .select_from(release_documents)
    .join(document_versions, _HELD_VERSION)
    .join(documents, documents.c.document_id == release_documents.c.document_id)
    .where(document_versions.c.deleted_at.is_(None))
)
_HELD_MANIFEST = (
    select(manifest)
    .join(
        release_documents,
        and_(
            manifest.c.document_id == release_documents.c.document_id,
            manifest.c.version == release_documents.c.version,
        ),
    )
    .order_by(manifest.c.document_id, manifest.c.chunk_index)
)


def releases_of_all(connection: Connection) -> list[RetainedRelease]:
    """Of every tenant: what answers, and what an operator may switch to."""
    moving = set(
        connection.execute(
            select(release_documents.c.release_id).where(release_documents.c.moving.is_not(None)).distinct()
        ).scalars()
    )
    rows = connection.execute(_RELEASE.where(releases_table.c.state.in_(_RETAINED)).order_by("seq"))
    return [
        RetainedRelease(
            tenant=row.tenant,
            release_id=row.release_id,
            kb_revision=row.kb_revision,
            space=_space(row),
            state=ReleaseState(row.state),
            moving=row.release_id in moving,
        )
        for row in rows
    ]


def spaces(connection: Connection) -> list[EmbeddingSpace]:
    """Every space that was ever built in."""
    return [_space(row) for row in connection.execute(select(embedding_spaces).order_by("space_id"))]


def unfinished(connection: Connection) -> frozenset[str]:
    """The revisions that are being built."""
    found = select(releases_table.c.kb_revision).where(releases_table.c.state.in_(_BUILDING))
    return frozenset(connection.execute(found).scalars())


def plan(connection: Connection, release_id: str) -> ReleasePlan:
    """What the release's rows are made from; without the documents that were deleted since."""
    release = connection.execute(_RELEASE.where(releases_table.c.release_id == release_id)).one()
    entries: dict[str, list[ManifestEntry]] = defaultdict(list)
    for row in connection.execute(_HELD_MANIFEST.where(release_documents.c.release_id == release_id)):
        entries[row.document_id].append(_entry(row))
    held = connection.execute(
        _HELD.where(release_documents.c.release_id == release_id).order_by(documents.c.source)
    )
    return ReleasePlan(
        release_id=release_id,
        tenant=release.tenant,
        kb_id=release.kb_id,
        knowledge_base=release.knowledge_base,
        kb_revision=release.kb_revision,
        base_sequence=release.base_sequence,
        revocation_epoch=release.revocation_epoch,
        space=_space(release),
        config=release_rows.config_from(release.config),
        manifest_hash=release.manifest_hash,
        documents=tuple(snapshots.planned_document(row, tuple(entries[row.document_id])) for row in held),
        unchanged_release=None,
    )


def needed_versions(withdrawn_since: float = _NEVER) -> Subquery:
    """The versions whose objects are there; of withdrawn ones those that were withdrawn since then."""
    return (
        select(document_versions.c.document_id, document_versions.c.version)
        .where(is_needed(withdrawn_since))
        .subquery()
    )


def versions(connection: Connection, after: str, limit: int) -> Sequence[PlannedDocument]:
    """The needed versions of the next ``limit`` documents after this id, by id and version."""
    needed = needed_versions()
    ids = (
        select(needed.c.document_id)
        .distinct()
        .where(needed.c.document_id > after)
        .order_by(needed.c.document_id)
        .limit(limit)
    )
    chosen = connection.execute(ids).scalars().all()
    if not chosen:
        return ()
    entries: dict[DocumentRef, list[ManifestEntry]] = defaultdict(list)
    for row in connection.execute(
        select(manifest).where(manifest.c.document_id.in_(chosen)).order_by(manifest.c.chunk_index)
    ):
        entries[DocumentRef(row.document_id, row.version)].append(_entry(row))
    rows = connection.execute(
        select(document_versions, documents.c.source, documents.c.acl_class.label("current_class"))
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .join(
            needed,
            and_(
                needed.c.document_id == document_versions.c.document_id,
                needed.c.version == document_versions.c.version,
            ),
        )
        .where(document_versions.c.document_id.in_(chosen))
        .order_by(document_versions.c.document_id, document_versions.c.version)
    )
    return [
        snapshots.planned_document(row, tuple(entries[DocumentRef(row.document_id, row.version)]))
        for row in rows
    ]


def _space(row: Row[Any]) -> EmbeddingSpace:
    return EmbeddingSpace(row.space_id, row.model, row.dimension, row.text_form)


def _entry(row: Row[Any]) -> ManifestEntry:
    return ManifestEntry(row.chunk_index, row.chunk_id, row.content_hash, row.text_hash)
