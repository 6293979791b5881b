"""Clean-ups: what a document's deleted versions have left, and what the catalog itself forgets of them."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, exists, select, update

from gateway.adapters.sql import classes, lexicon, manifests, references, talks, tasks, traces
from gateway.adapters.sql.claims import held, still_held
from gateway.adapters.sql.rows import locked_kb, placed
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    embedding_spaces,
    manifest,
    release_documents,
    releases,
    vector_places,
)
from gateway.adapters.sql.tables import tasks as task_rows
from gateway.ingest.plan import ClassTerms
from gateway.ingest.references import CLEANUP_DEADLINE_S, DeletedVersion, DocumentTerms, Holding, Remains
from gateway.ingest.task import JOIN_S, TaskClaim, TaskKind, TaskState
from gateway.release.model import ReleaseState
from gateway.retrieval.lexicon import Validity

#: tasks made in one short transaction
_OWED = 100


def queue(connection: Connection, now: float, kb: Row[Any], document_id: str | None) -> str:
    """The task that cleans up after a document's deletion or revocation, or tells of a knowledge base's;
    the one that is waiting already. The caller holds ``kb`` locked.
    """
    waiting = (
        select(task_rows.c.task_id)
        .where(
            task_rows.c.kb_id == kb.kb_id,
            task_rows.c.kind == TaskKind.CLEANUP.value,
            task_rows.c.target.is_(None) if document_id is None else task_rows.c.target == document_id,
            task_rows.c.state == TaskState.PENDING.value,
            task_rows.c.cancel_requested.is_(False),
            task_rows.c.created_at > now - JOIN_S,
        )
        .limit(1)
        .with_for_update()  # else a worker could begin it, and look, before this is committed
    )
    known = connection.execute(waiting).scalar_one_or_none()
    if known is not None:
        return str(known)
    return tasks.add_task(connection, now, TaskKind.CLEANUP, kb, CLEANUP_DEADLINE_S, target=document_id)


def unclean(connection: Connection, among: Collection[str] | None = None) -> list[str]:
    """Documents, of these when they are given, with a deleted version that still needs cleaning up, and
    nobody is at it: its task failed, or was cancelled, or the version was built afterwards.
    """
    at_it = exists(
        select(task_rows.c.task_id).where(
            task_rows.c.kind == TaskKind.CLEANUP.value,
            task_rows.c.target == document_versions.c.document_id,
            task_rows.c.state.in_((TaskState.PENDING.value, TaskState.RUNNING.value)),
        )
    )
    found = select(document_versions.c.document_id).where(
        document_versions.c.deleted_at.is_not(None), document_versions.c.chunks_key != "", ~at_it
    )
    if among is not None:
        found = found.where(document_versions.c.document_id.in_(among))
    ordered = found.distinct().order_by(document_versions.c.document_id).limit(_OWED)
    return list(connection.execute(ordered).scalars())


def owed(connection: Connection, now: float, among: Collection[str]) -> int:
    """Queues what these documents need by now. How many tasks it made."""
    found = unclean(connection, among)
    for kb_id, document_id in placed(connection, found):
        queue(connection, now, locked_kb(connection, kb_id), document_id)
    return len(found)


def remains(connection: Connection, claim: TaskClaim) -> Remains | None:
    still_held(connection, claim)
    document_id = str(claim.target)
    rows = connection.execute(
        select(document_versions)
        .where(document_versions.c.document_id == document_id, document_versions.c.deleted_at.is_not(None))
        .order_by(document_versions.c.version)
    ).all()
    if not rows:
        return None
    numbers = [row.version for row in rows]
    return Remains(
        document_id=document_id,
        deleted_at=max(row.deleted_at for row in rows),
        versions=tuple(
            DeletedVersion(row.version, row.title, row.original_key, row.chunks_key) for row in rows
        ),
        holdings=_holdings(connection, claim.kb_id, document_id, numbers),
        vector_files=_vector_files(connection, document_id, numbers),
        spaces=tuple(connection.execute(select(embedding_spaces.c.space_id)).scalars()),
    )


def _holdings(
    connection: Connection, kb_id: str, document_id: str, deleted: Sequence[int]
) -> tuple[Holding, ...]:
    """Every revision that has rows, but for those that hold a version imported after the deletion."""
    rows = connection.execute(
        select(
            releases,
            embedding_spaces.c.model,
            embedding_spaces.c.dimension,
            embedding_spaces.c.text_form,
            release_documents.c.version,
        )
        .join(embedding_spaces, embedding_spaces.c.space_id == releases.c.space_id)
        .outerjoin(
            release_documents,
            and_(
                release_documents.c.release_id == releases.c.release_id,
                release_documents.c.document_id == document_id,
            ),
        )
        .where(releases.c.kb_id == kb_id, releases.c.state != ReleaseState.RECLAIMED.value)
        .order_by(releases.c.seq)
    )
    return tuple(
        Holding(references.stored_revision(row), row.version)
        for row in rows
        if row.version is None or row.version in deleted
    )


def _vector_files(connection: Connection, document_id: str, versions: Sequence[int]) -> tuple[str, ...]:
    texts = select(manifest.c.text_hash).where(
        manifest.c.document_id == document_id, manifest.c.version.in_(versions)
    )
    files = select(vector_places.c.object_key).where(vector_places.c.text_hash.in_(texts)).distinct()
    return tuple(connection.execute(files.order_by(vector_places.c.object_key)).scalars())


def forget(connection: Connection, claim: TaskClaim, holding: Holding, terms: DocumentTerms | None) -> None:
    held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    gone = connection.execute(
        delete(release_documents)
        .where(
            release_documents.c.release_id == holding.revision.release_id,
            release_documents.c.document_id == claim.target,
            release_documents.c.version == holding.version,
        )
        .returning(release_documents.c.version, release_documents.c.acl_class, release_documents.c.approval)
    ).one_or_none()
    if gone is None:
        return
    _count_less(connection, claim, holding, gone, terms)
    if holding.revision.release_id == kb.active_release_id and _lay_elsewhere(connection, claim, gone):
        classes.bump_revision(connection, kb.kb_id)


def _lay_elsewhere(connection: Connection, claim: TaskClaim, gone: Any) -> bool:
    """Whether a live document's rows carried another class than it has now, which may have been in use for
    these alone.
    """
    elsewhere = select(documents.c.document_id).where(
        documents.c.document_id == claim.target,
        documents.c.deleted_at.is_(None),
        documents.c.acl_class != gone.acl_class,
    )
    return connection.execute(elsewhere).one_or_none() is not None


def _count_less(
    connection: Connection, claim: TaskClaim, holding: Holding, gone: Any, terms: DocumentTerms | None
) -> None:
    revision = holding.revision
    entries = manifests.entries(connection, str(claim.target), gone.version, gone.acl_class, gone.approval)
    connection.execute(
        update(releases)
        .where(releases.c.release_id == revision.release_id)
        .values(documents=releases.c.documents - 1, chunks=releases.c.chunks - len(entries))
    )
    manifests.change(connection, revision.release_id, gone=entries)
    if terms is not None:
        validity = _validity(connection, str(claim.target), gone.version)
        counted = ClassTerms(gone.acl_class, terms.passages, terms.frequencies, validity)
        lexicon.subtract(connection, revision.kb_revision, gone.acl_class, counted)


def _validity(connection: Connection, document_id: str, version: int) -> Validity:
    mine = (document_versions.c.document_id == document_id, document_versions.c.version == version)
    dates = select(document_versions.c.valid_from, document_versions.c.valid_until).where(*mine)
    return Validity.of(*connection.execute(dates).one())


def erase_quotes(connection: Connection, claim: TaskClaim, versions: Sequence[int]) -> int:
    held(connection, claim)
    document_id = str(claim.target)
    return traces.forget(connection, document_id, versions) + talks.forget(connection, document_id, versions)


def erase(connection: Connection, claim: TaskClaim, versions: Sequence[int]) -> None:
    held(connection, claim)
    mine = (document_versions.c.document_id == claim.target, document_versions.c.version.in_(versions))
    connection.execute(
        delete(manifest).where(manifest.c.document_id == claim.target, manifest.c.version.in_(versions))
    )
    connection.execute(
        update(document_versions)
        .where(*mine, document_versions.c.deleted_at.is_not(None))
        .values(title="", chunks_key="")
    )
