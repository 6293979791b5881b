"""How a build begins: its snapshot is read beside the writer, and kept in steps that are short each.

A release is PENDING while its list of documents is being kept. The last step brings the list up to date with
what has changed meanwhile and makes it BUILDING, so it is of that moment. Whoever stops before leaves a
PENDING release that the task's next attempt gives up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from gateway.adapters.sql import configs, models, snapshots
from gateway.adapters.sql import releases as release_rows
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.rows import batches, fresh_id, insert_missing, locked_kb
from gateway.adapters.sql.snapshots import Look
from gateway.adapters.sql.tables import embedding_spaces, release_documents, releases, tasks, tenants
from gateway.errors import Conflict
from gateway.ingest.manifest import changed_hash, entries_of, manifest_hash
from gateway.ingest.plan import PlannedDocument, ReleasePlan
from gateway.ingest.task import TaskClaim
from gateway.release.model import EmbeddingSpace, ReleaseState, RetrievalConfig

LATE_DOCUMENTS = 500
#: a list of which more has changed is read anew, so often at most
_READINGS = 3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the builder would have its release say."""

    space: EmbeddingSpace
    config: RetrievalConfig
    model: str


async def begin(
    database: Database, claim: TaskClaim, wanted: Wanted, *, late: int = LATE_DOCUMENTS
) -> ReleasePlan:
    """``late``: how many documents the last step may read again. Raises StaleFence, Conflict."""
    for _ in range(_READINGS - 1):
        begun = await _begun(database, claim, wanted, late)
        if begun is not None:
            return begun
    begun = await _begun(database, claim, wanted, None)
    assert begun is not None  # noqa: S101 - the last reading has no limit
    return begun


async def _begun(
    database: Database, claim: TaskClaim, wanted: Wanted, limit: int | None
) -> ReleasePlan | None:
    """None when more than ``limit`` documents changed while they were listed."""
    seen = await database.browse(lambda c: snapshots.look_at_active(c, claim.kb_id))
    opened = await database.write(lambda c, now: _open(c, now, claim, wanted, seen))
    if opened.unchanged_release is not None:
        return opened
    plan = await _listed(database, claim, opened)
    late = await database.browse(lambda c: snapshots.look(c, plan.kb_id, plan.release_id))
    return await database.write(lambda c, now: _begin(c, claim, plan, wanted, late, limit))


def _open(connection: Connection, now: float, claim: TaskClaim, wanted: Wanted, seen: Look) -> ReleasePlan:
    """Of no documents yet; or the active release's, when that is what would be built."""
    task = held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    release_rows.abandon(connection, claim.task_id, "started again")
    _keep_space(connection, wanted.space)
    plan = _empty_plan(connection, kb, _release_id(connection, task), wanted)
    plan = replace(plan, unchanged_release=_unchanged(connection, kb, plan, seen))
    if plan.unchanged_release is None:
        _keep(connection, now, claim, plan)
    else:
        _name_release(connection, claim, plan.unchanged_release)
    return plan


async def _listed(database: Database, claim: TaskClaim, plan: ReleasePlan) -> ReleasePlan:
    documents = await database.browse(lambda c: snapshots.documents_of(c, plan.kb_id))
    for batch in batches(documents):
        await database.write(lambda c, now: _add(c, claim, plan.release_id, batch))  # noqa: B023 - awaited at once
    return _with_documents(plan, documents)


def _add(connection: Connection, claim: TaskClaim, release_id: str, batch: Sequence[PlannedDocument]) -> None:
    held(connection, claim)
    _hold(connection, release_id, batch)


def _begin(
    connection: Connection,
    claim: TaskClaim,
    listed: ReleasePlan,
    wanted: Wanted,
    seen: Look,
    limit: int | None,
) -> ReleasePlan | None:
    """None when more than ``limit`` documents have changed since they were listed."""
    held(connection, claim)
    kb = locked_kb(connection, claim.kb_id)
    late = snapshots.changed_by_now(connection, kb.kb_id, listed.release_id, seen)
    if limit is not None and len(late) > limit:
        return None
    plan = replace(
        _empty_plan(connection, kb, listed.release_id, wanted, listed.kb_revision),
        documents=listed.documents,
        manifest_hash=listed.manifest_hash,
    )
    if late:
        plan = _caught_up(connection, plan, late)
    connection.execute(
        update(releases)
        .where(releases.c.release_id == plan.release_id)
        .values(state=ReleaseState.BUILDING.value, ready_count=kb.ready_count, **_told(plan))
    )
    _name_release(connection, claim, plan.release_id)
    return plan


def _caught_up(connection: Connection, plan: ReleasePlan, late: Sequence[str]) -> ReleasePlan:
    """With those documents as they are now. Its hash costs no more than they do."""
    changed = set(late)
    gone = [document for document in plan.documents if document.ref.document_id in changed]
    come: list[PlannedDocument] = []
    for batch in batches(late):
        connection.execute(
            delete(release_documents).where(
                release_documents.c.release_id == plan.release_id,
                release_documents.c.document_id.in_(batch),
            )
        )
        fresh = snapshots.documents_of(connection, plan.kb_id, batch)
        _hold(connection, plan.release_id, fresh)
        come.extend(fresh)
    hashed = changed_hash(plan.manifest_hash, entries_of(gone), entries_of(come))
    kept = [document for document in plan.documents if document.ref.document_id not in changed]
    assert hashed is not None  # noqa: S101 - it was made here, in today's form
    return replace(plan, documents=_ordered([*kept, *come]), manifest_hash=hashed)


def _empty_plan(
    connection: Connection, kb: Row[Any], release_id: str, wanted: Wanted, kb_revision: str | None = None
) -> ReleasePlan:
    return ReleasePlan(
        release_id=release_id,
        tenant=kb.tenant,
        kb_id=kb.kb_id,
        knowledge_base=kb.name,
        kb_revision=kb_revision or fresh_id("rev"),
        base_sequence=kb.release_sequence,
        revocation_epoch=_epoch(connection, kb.tenant),
        space=wanted.space,
        config=configs.standing(connection, kb, wanted.space, wanted.config),
        manifest_hash=manifest_hash(()),
        documents=(),
        unchanged_release=None,
        model=models.standing(connection, kb, wanted.model),
    )


def _with_documents(plan: ReleasePlan, documents: Iterable[PlannedDocument]) -> ReleasePlan:
    ordered = _ordered(documents)
    return replace(plan, documents=ordered, manifest_hash=manifest_hash(entries_of(ordered)))


def _ordered(documents: Iterable[PlannedDocument]) -> tuple[PlannedDocument, ...]:
    """By source, in order of code points."""
    return tuple(sorted(documents, key=lambda document: document.source))


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


def _unchanged(connection: Connection, kb: Row[Any], plan: ReleasePlan, seen: Look) -> str | None:
    """The active release, when it is what this build would make; one that names no model is so with any.

    A version's passages never change, so the same versions make the same manifest.
    """
    same: str | None = connection.execute(
        select(releases.c.release_id).where(
            releases.c.release_id == kb.active_release_id,
            releases.c.space_id == plan.space.space_id,
            releases.c.config == release_rows.config_text(plan.config),
            releases.c.model_adapter.in_(["", plan.model]),
        )
    ).scalar_one_or_none()
    if same is None or snapshots.changed_by_now(connection, kb.kb_id, same, seen):
        return None
    return same


def _epoch(connection: Connection, tenant: str) -> int:
    return int(
        connection.execute(select(tenants.c.revocation_epoch).where(tenants.c.tenant == tenant)).scalar_one()
    )


def _keep(connection: Connection, now: float, claim: TaskClaim, plan: ReleasePlan) -> None:
    connection.execute(
        insert(releases).values(
            release_id=plan.release_id,
            tenant=plan.tenant,
            kb_id=plan.kb_id,
            kb_revision=plan.kb_revision,
            state=ReleaseState.PENDING.value,
            ready_count=0,
            space_id=plan.space.space_id,
            task_id=claim.task_id,
            created_at=now,
            **_told(plan),
        )
    )


def _told(plan: ReleasePlan) -> dict[str, Any]:
    return {
        "base_sequence": plan.base_sequence,
        "revocation_epoch": plan.revocation_epoch,
        "config": release_rows.config_text(plan.config),
        "model_adapter": plan.model,
        "manifest_hash": plan.manifest_hash,
        "documents": len(plan.documents),
        "chunks": sum(len(document.manifest) for document in plan.documents),
    }


def _hold(connection: Connection, release_id: str, documents: Iterable[PlannedDocument]) -> None:
    rows = [
        {
            "release_id": release_id,
            "document_id": document.ref.document_id,
            "version": document.ref.document_version,
            "acl_class": document.acl_class,
            "approval": document.approval,
        }
        for document in documents
    ]
    if rows:
        connection.execute(insert(release_documents), rows)


def _name_release(connection: Connection, claim: TaskClaim, release_id: str) -> None:
    connection.execute(update(tasks).where(tasks.c.task_id == claim.task_id).values(release_id=release_id))
