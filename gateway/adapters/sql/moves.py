"""Moves: which retained revisions hold a document's rows under another class than its present one.

``release_documents.moving`` says that a move was begun and its rows can't be told from the catalog: then
they are rewritten even when the class is right by now.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, and_, case, exists, literal, or_, select, update

from gateway.access.classes import CLASS_OF_NOBODY
from gateway.adapters.sql import classes, cleanups, lexicon, manifests, snapshots, tasks
from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import locked_kb, placed
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    embedding_spaces,
    knowledge_bases,
    manifest,
    release_documents,
    releases,
    revocations,
)
from gateway.adapters.sql.tables import tasks as task_rows
from gateway.ingest.manifest import entries_of
from gateway.ingest.plan import ClassTerms, PlannedDocument, ReleasePlan
from gateway.ingest.task import JOIN_S, TaskClaim, TaskKind, TaskState
from gateway.ingest.version import ManifestEntry
from gateway.release.model import EmbeddingSpace, ReleaseState
from gateway.stream.revocation import RevocationKind

#: of a move that nobody waits for: meanwhile the re-check holds
DEADLINE_S = 86_400.0
#: releases whose rows are kept, and read or soon to be
_RETAINED = (ReleaseState.ACTIVE.value, ReleaseState.RETIRED.value, ReleaseState.READY.value)
_LIVE = (TaskState.PENDING.value, TaskState.RUNNING.value)
_UNDONE = (TaskState.FAILED.value, TaskState.CANCELLED.value)
#: tasks made in one short transaction
_OWED = 100
_moves = task_rows.alias("moves")
_REVOKED = exists(
    select(revocations.c.seq).where(
        revocations.c.tenant == documents.c.tenant,
        revocations.c.kind == RevocationKind.DOCUMENT.value,
        revocations.c.subject == documents.c.document_id,
        revocations.c.lifted_at.is_(None),
    )
)
_BUILDING = (ReleaseState.PENDING.value, ReleaseState.BUILDING.value, ReleaseState.VALIDATING.value)


def queue(
    connection: Connection, now: float, kb: Row[Any], document_id: str, deadline_s: float
) -> str | None:
    """The task that will move the document's rows, None when none lies wrong; ``kb`` is held locked."""
    wanted = _present_class(connection, kb.kb_id, document_id)
    if wanted is None:
        return None
    wrong = _lying_wrong(document_id, wanted).where(releases.c.state.in_(_RETAINED + _BUILDING)).limit(1)
    if connection.execute(wrong).first() is None:
        return None
    waiting = select(task_rows.c.task_id).where(
        task_rows.c.kb_id == kb.kb_id,
        task_rows.c.kind == TaskKind.MOVE.value,
        task_rows.c.target == document_id,
        task_rows.c.state == TaskState.PENDING.value,
        task_rows.c.cancel_requested.is_(False),
        task_rows.c.created_at > now - JOIN_S,
    )
    known = connection.execute(waiting.limit(1).with_for_update()).scalar_one_or_none()
    if known is not None:
        return str(known)
    return tasks.add_task(connection, now, TaskKind.MOVE, kb, deadline_s, target=document_id)


def unmoved(connection: Connection, among: Collection[str] | None = None) -> list[str]:
    """Documents, of these when they are given, whose move ended without having been done, while their rows
    still lie wrong. An import that brings new rows waits for its release instead: nobody has asked for it.
    """
    of_document = (_moves.c.kind == TaskKind.MOVE.value, _moves.c.target == documents.c.document_id)
    undone = exists().where(*of_document, _moves.c.state.in_(_UNDONE))
    at_it = exists().where(*of_document, _moves.c.state.in_(_LIVE))
    wanted = case((_REVOKED, CLASS_OF_NOBODY), else_=documents.c.acl_class)
    found = (
        select(documents.c.document_id)
        .join(release_documents, release_documents.c.document_id == documents.c.document_id)
        .join(releases, releases.c.release_id == release_documents.c.release_id)
        .where(
            documents.c.deleted_at.is_(None),
            releases.c.state.in_(_RETAINED),
            or_(release_documents.c.acl_class != wanted, release_documents.c.moving.is_not(None)),
            undone,
            ~at_it,
        )
        .distinct()
        .order_by(documents.c.document_id)
        .limit(_OWED)
    )
    if among is not None:
        found = found.where(documents.c.document_id.in_(among))
    return list(connection.execute(found).scalars())


def owed(connection: Connection, now: float, among: Collection[str]) -> int:
    """Queues again what these documents need by now. How many tasks it made."""
    made = (
        queue(connection, now, locked_kb(connection, kb_id), document_id, DEADLINE_S)
        for kb_id, document_id in placed(connection, unmoved(connection, among))
    )
    return sum(task_id is not None for task_id in made)


def begin(connection: Connection, claim: TaskClaim) -> tuple[ReleasePlan, ...]:
    """The active release first, then the newest."""
    held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    document_id = str(claim.target)
    wanted = _present_class(connection, kb.kb_id, document_id)
    if wanted is None:
        return ()
    rows = connection.execute(
        _lying_wrong(document_id, wanted)
        .where(releases.c.state.in_(_RETAINED))
        .order_by((releases.c.state == ReleaseState.ACTIVE.value).desc(), releases.c.seq.desc())
    ).all()
    _mark(connection, document_id, [row.release_id for row in rows], wanted)
    return tuple(_plan(kb, row, _document(connection, document_id, row.held_version, wanted)) for row in rows)


def _lying_wrong(document_id: str, wanted: int) -> Any:
    """Releases that hold the document under another class, or nobody knows under which."""
    return (
        select(
            releases,
            embedding_spaces.c.model,
            embedding_spaces.c.dimension,
            embedding_spaces.c.text_form,
            release_documents.c.version.label("held_version"),
        )
        .join(release_documents, release_documents.c.release_id == releases.c.release_id)
        .join(embedding_spaces, embedding_spaces.c.space_id == releases.c.space_id)
        .where(
            release_documents.c.document_id == document_id,
            or_(release_documents.c.acl_class != wanted, release_documents.c.moving.is_not(None)),
        )
    )


def _present_class(connection: Connection, kb_id: str, document_id: str) -> int | None:
    """The class that the document's rows shall have; None when there is no such live document."""
    row = connection.execute(
        select(documents.c.acl_class, _REVOKED.label("revoked")).where(
            documents.c.document_id == document_id,
            documents.c.kb_id == kb_id,
            documents.c.deleted_at.is_(None),
        )
    ).one_or_none()
    if row is None:
        return None
    return CLASS_OF_NOBODY if row.revoked else int(row.acl_class)


def _mark(connection: Connection, document_id: str, release_ids: Sequence[str], acl_class: int) -> None:
    connection.execute(
        update(release_documents)
        .where(
            release_documents.c.document_id == document_id, release_documents.c.release_id.in_(release_ids)
        )
        .values(moving=acl_class)
    )


def _document(connection: Connection, document_id: str, version: int, acl_class: int) -> PlannedDocument:
    row = connection.execute(
        select(document_versions, documents.c.source, literal(acl_class).label("current_class"))
        .join(documents, documents.c.document_id == document_versions.c.document_id)
        .where(document_versions.c.document_id == document_id, document_versions.c.version == version)
    ).one()
    entries = connection.execute(
        select(manifest)
        .where(manifest.c.document_id == document_id, manifest.c.version == version)
        .order_by(manifest.c.chunk_index)
    )
    return snapshots.planned_document(
        row, tuple(ManifestEntry(e.chunk_index, e.chunk_id, e.content_hash, e.text_hash) for e in entries)
    )


def _plan(kb: Row[Any], release: Row[Any], document: PlannedDocument) -> ReleasePlan:
    return ReleasePlan(
        release_id=release.release_id,
        tenant=kb.tenant,
        kb_id=kb.kb_id,
        knowledge_base=kb.name,
        kb_revision=release.kb_revision,
        base_sequence=release.base_sequence,
        revocation_epoch=release.revocation_epoch,
        space=EmbeddingSpace(release.space_id, release.model, release.dimension, release.text_form),
        config=release_rows.config_from(release.config),
        manifest_hash=release.manifest_hash,
        documents=(document,),
        unchanged_release=None,
    )


def finish(connection: Connection, claim: TaskClaim, plan: ReleasePlan, terms: ClassTerms) -> None:
    held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    (document,) = plan.documents
    stored = connection.execute(
        select(release_documents.c.acl_class, release_documents.c.approval)
        .join(releases, releases.c.release_id == release_documents.c.release_id)
        .where(
            releases.c.release_id == plan.release_id,
            releases.c.state.in_(_RETAINED),
            release_documents.c.document_id == document.ref.document_id,
            release_documents.c.version == document.ref.document_version,
        )
    ).one_or_none()
    if stored is None:
        return
    connection.execute(
        update(release_documents)
        .where(
            release_documents.c.release_id == plan.release_id,
            release_documents.c.document_id == document.ref.document_id,
        )
        .values(acl_class=document.acl_class, moving=None, approval=document.approval)
    )
    if stored.acl_class != document.acl_class:  # others find it now, or do no longer
        counted = replace(terms, validity=document.validity)
        lexicon.move(connection, plan.kb_revision, stored.acl_class, counted)
        classes.bump_revision(connection, kb.kb_id)
    before = replace(document, acl_class=stored.acl_class, approval=stored.approval)
    manifests.change(connection, plan.release_id, gone=entries_of([before]), come=entries_of([document]))


def distrust(connection: Connection, now: float, claim: TaskClaim) -> None:
    """The knowledge base first, as every other writer does."""
    kb = locked_kb(connection, claim.kb_id)
    task = connection.execute(select(task_rows).where(task_rows.c.task_id == claim.task_id)).one()
    if task.fence == claim.fence and task.state == TaskState.RUNNING.value:
        return
    document_id = str(claim.target)
    held_in = (
        select(releases.c.release_id)
        .join(
            release_documents,
            and_(
                release_documents.c.release_id == releases.c.release_id,
                release_documents.c.document_id == document_id,
            ),
        )
        .where(releases.c.kb_id == kb.kb_id, releases.c.state.in_(_RETAINED))
    )
    release_ids = connection.execute(held_in).scalars().all()
    wanted = _present_class(connection, kb.kb_id, document_id)
    if wanted is None:  # it was deleted, and what was just written may have come after its clean-up
        cleanups.queue(connection, now, kb, document_id)
        return
    _mark(connection, document_id, release_ids, wanted)
    queue(connection, now, kb, document_id, DEADLINE_S)


def kb_of(connection: Connection, tenant: str, document_id: str) -> Row[Any] | None:
    """The knowledge base of a tenant's document, locked; None when there is no such document."""
    kb_id = connection.execute(
        select(documents.c.kb_id)
        .join(knowledge_bases, knowledge_bases.c.kb_id == documents.c.kb_id)
        .where(documents.c.document_id == document_id, documents.c.tenant == tenant)
    ).scalar_one_or_none()
    return None if kb_id is None else locked_kb(connection, kb_id)
