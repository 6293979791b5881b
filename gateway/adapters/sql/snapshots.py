"""Snapshots: what a release takes in, fixed at the moment its build begins."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, exists, func, insert, or_, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import configs, models
from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import fresh_id, insert_missing, locked_kb
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    embedding_spaces,
    manifest,
    release_documents,
    releases,
    revocations,
    tasks,
    tenants,
)
from gateway.errors import Conflict
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.task import TaskClaim
from gateway.ingest.version import ManifestEntry
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig, VersionState
from gateway.retrieval.chunk import stable_hash
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
_DOCUMENTS = (
    select(document_versions, documents.c.source, documents.c.acl_class.label("current_class"))
    .join(
        _newest,
        and_(
            _newest.c.document_id == document_versions.c.document_id,
            _newest.c.version == document_versions.c.version,
        ),
    )
    .join(documents, documents.c.document_id == document_versions.c.document_id)
)
_MANIFEST = (
    select(manifest)
    .join(
        _newest,
        and_(_newest.c.document_id == manifest.c.document_id, _newest.c.version == manifest.c.version),
    )
    .order_by(manifest.c.document_id, manifest.c.chunk_index)
)

_CHUNKS_OF_RELEASE = (
    select(
        manifest.c.chunk_id,
        manifest.c.content_hash,
        release_documents.c.acl_class,
        release_documents.c.approval,
    )
    .select_from(release_documents)
    .join(
        manifest,
        and_(
            manifest.c.document_id == release_documents.c.document_id,
            manifest.c.version == release_documents.c.version,
        ),
    )
    .where(release_documents.c.release_id == bindparam("release_id"))
)


def begin(
    connection: Connection,
    now: float,
    claim: TaskClaim,
    space: EmbeddingSpace,
    config: RetrievalConfig,
    model: str,
) -> ReleasePlan:
    task = held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    release_rows.abandon(connection, claim.task_id, "started again")
    _keep_space(connection, space)
    planned = _planned(connection, kb.kb_id)
    manifest_hash = _manifest_hash(planned)
    config = configs.standing(connection, kb, space, config)
    model = models.standing(connection, kb, model)
    unchanged = _unchanged(connection, kb, manifest_hash, space, config, model)
    plan = ReleasePlan(
        release_id=_release_id(connection, task),
        tenant=kb.tenant,
        kb_id=kb.kb_id,
        knowledge_base=kb.name,
        kb_revision=fresh_id("rev"),
        base_sequence=kb.release_sequence,
        revocation_epoch=_epoch(connection, kb.tenant),
        space=space,
        config=config,
        manifest_hash=manifest_hash,
        documents=planned,
        unchanged_release=unchanged,
        model=model,
    )
    if unchanged is None:
        _keep(connection, now, claim, kb, plan)
    connection.execute(
        update(tasks).where(tasks.c.task_id == claim.task_id).values(release_id=unchanged or plan.release_id)
    )
    return plan


def _release_id(connection: Connection, task: Row[Any]) -> str:
    """The id promised when the task was accepted, for its first release; then fresh ones."""
    promised: str | None = task.planned_release_id
    used = select(releases.c.seq).where(releases.c.release_id == promised)
    if promised is None or connection.execute(used).one_or_none() is not None:
        return fresh_id("rel")
    return promised


def _keep_space(connection: Connection, space: EmbeddingSpace) -> None:
    """Raises Conflict when the id already names another space."""
    parts = {"model": space.model, "dimension": space.dimension, "text_form": space.text_form}
    insert_missing(connection, embedding_spaces, [{"space_id": space.space_id, **parts}])
    known = connection.execute(
        select(embedding_spaces).where(embedding_spaces.c.space_id == space.space_id)
    ).one()
    if any(getattr(known, part) != value for part, value in parts.items()):
        raise Conflict("this embedding space id already names another space")


def _planned(connection: Connection, kb_id: str) -> tuple[PlannedDocument, ...]:
    """By source, in order of code points."""
    entries: dict[str, list[ManifestEntry]] = defaultdict(list)
    for row in connection.execute(_MANIFEST, {"kb_id": kb_id}):
        entries[row.document_id].append(
            ManifestEntry(row.chunk_index, row.chunk_id, row.content_hash, row.text_hash)
        )
    rows = sorted(connection.execute(_DOCUMENTS, {"kb_id": kb_id}), key=lambda row: str(row.source))
    return tuple(planned_document(row, tuple(entries[row.document_id])) for row in rows)


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


def _manifest_hash(planned: Sequence[PlannedDocument]) -> str:
    return _hash_of(
        (e.chunk_id, e.content_hash, d.acl_class, d.approval) for d in planned for e in d.manifest
    )


def _hash_of(chunks: Iterable[tuple[str, str, int, str]]) -> str:
    """Over every (chunk_id, content_hash, acl_class, approval), in an order of its own."""
    return stable_hash(*(part for chunk in sorted(chunks) for part in chunk))


def rehash(connection: Connection, release_id: str) -> None:
    """The release's manifest hash once more, after a document of it was moved to another class."""
    chunks = connection.execute(_CHUNKS_OF_RELEASE, {"release_id": release_id})
    connection.execute(
        update(releases)
        .where(releases.c.release_id == release_id)
        .values(manifest_hash=_hash_of((row[0], row[1], row[2], row[3]) for row in chunks))
    )


def _unchanged(
    connection: Connection,
    kb: Row[Any],
    manifest_hash: str,
    space: EmbeddingSpace,
    config: RetrievalConfig,
    model: str,
) -> str | None:
    """The active release, when it is what this build would make; one that names no model is so with any."""
    return connection.execute(
        select(releases.c.release_id).where(
            releases.c.release_id == kb.active_release_id,
            releases.c.manifest_hash == manifest_hash,
            releases.c.space_id == space.space_id,
            releases.c.config == release_rows.config_text(config),
            releases.c.model_adapter.in_(["", model]),
        )
    ).scalar_one_or_none()


def _epoch(connection: Connection, tenant: str) -> int:
    return int(
        connection.execute(select(tenants.c.revocation_epoch).where(tenants.c.tenant == tenant)).scalar_one()
    )


def _keep(connection: Connection, now: float, claim: TaskClaim, kb: Row[Any], plan: ReleasePlan) -> None:
    connection.execute(
        insert(releases).values(
            release_id=plan.release_id,
            tenant=plan.tenant,
            kb_id=plan.kb_id,
            kb_revision=plan.kb_revision,
            state=ReleaseState.BUILDING.value,
            base_sequence=plan.base_sequence,
            ready_count=kb.ready_count,
            revocation_epoch=plan.revocation_epoch,
            space_id=plan.space.space_id,
            config=release_rows.config_text(plan.config),
            model_adapter=plan.model,
            manifest_hash=plan.manifest_hash,
            documents=len(plan.documents),
            chunks=sum(len(document.manifest) for document in plan.documents),
            task_id=claim.task_id,
            created_at=now,
        )
    )
    rows = [
        {
            "release_id": plan.release_id,
            "document_id": document.ref.document_id,
            "version": document.ref.document_version,
            "acl_class": document.acl_class,
            "approval": document.approval,
        }
        for document in plan.documents
    ]
    if rows:
        connection.execute(insert(release_documents), rows)
