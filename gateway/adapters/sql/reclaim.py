"""Reclaim: revisions whose time is over, and whose turn it is to take them and stray objects away."""

from typing import Any

from sqlalchemy import Connection, Row, and_, exists, func, or_, select, update

from gateway.adapters.sql import cleanups, counting, moves, references, tasks
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.database import Database
from gateway.adapters.sql.rows import insert_missing, locked_kb
from gateway.adapters.sql.tables import embedding_spaces, knowledge_bases, meta, releases
from gateway.adapters.sql.tables import tasks as task_rows
from gateway.ingest.references import ReclaimPolicy, StoredRevision
from gateway.ingest.task import TaskClaim, TaskKind, TaskState
from gateway.release.model import ReleaseState, check_release_transition

_LIVE_TASKS = (TaskState.PENDING.value, TaskState.RUNNING.value)
_SWEPT = "objects_swept_at"
#: sweeps of a reclaimed revision until its afterlife is over
_SWEEPS = 4

_being_built = exists(
    select(task_rows.c.task_id).where(
        task_rows.c.task_id == releases.c.task_id, task_rows.c.state.in_(_LIVE_TASKS)
    )
)
_has_task = exists(
    select(task_rows.c.task_id).where(
        task_rows.c.kb_id == knowledge_bases.c.kb_id,
        task_rows.c.kind == TaskKind.RECLAIM.value,
        task_rows.c.state.in_(_LIVE_TASKS),
    )
)


_newest = (
    select(
        releases.c.release_id,
        func.row_number()
        .over(partition_by=releases.c.kb_id, order_by=releases.c.retired_sequence.desc())
        .label("place"),
    )
    .where(releases.c.state == ReleaseState.RETIRED.value, releases.c.retired_sequence.is_not(None))
    .subquery()
)


def _due(now: float, policy: ReclaimPolicy) -> Any:
    """A condition on ``releases``."""
    until = now - policy.window_s
    kept = select(_newest.c.release_id).where(_newest.c.place <= policy.releases)
    return or_(
        releases.c.state == ReleaseState.FAILED.value,
        and_(
            releases.c.state == ReleaseState.RETIRED.value,
            releases.c.retired_at <= until,
            releases.c.release_id.not_in(kept),
        ),
        and_(releases.c.state == ReleaseState.READY.value, releases.c.created_at <= until, ~_being_built),
        and_(releases.c.state == ReleaseState.RECLAIMED.value, _to_be_swept(now, policy.afterlife_s)),
    )


def _to_be_swept(now: float, afterlife_s: float) -> Any:
    return or_(
        releases.c.swept_at.is_(None),
        and_(
            releases.c.swept_at < releases.c.reclaimed_at + afterlife_s,
            releases.c.swept_at <= now - afterlife_s / _SWEEPS,
        ),
    )


async def schedule(database: Database, policy: ReclaimPolicy, deadline_s: float) -> int:
    """What ended without having been done is looked for beside the writer, and looked at again under it."""
    made = await database.write(lambda c, now: _schedule(c, now, policy, deadline_s))
    if unclean := await database.browse(cleanups.unclean):
        made += await database.write(lambda c, now: cleanups.owed(c, now, unclean))
    if unmoved := await database.browse(moves.unmoved):
        made += await database.write(lambda c, now: moves.owed(c, now, unmoved))
    return made


def _schedule(connection: Connection, now: float, policy: ReclaimPolicy, deadline_s: float) -> int:
    wanting = (
        select(knowledge_bases.c.kb_id)
        .where(
            ~_has_task,
            knowledge_bases.c.kb_id.in_(select(releases.c.kb_id).where(_due(now, policy))),
        )
        .order_by(knowledge_bases.c.kb_id)
    )
    made = 0
    for kb_id in connection.execute(wanting).scalars().all():
        kb = locked_kb(connection, kb_id)
        waiting = select(knowledge_bases.c.kb_id).where(knowledge_bases.c.kb_id == kb_id, _has_task)
        if connection.execute(waiting).first() is None:  # still, now that nobody else can make one
            tasks.add_task(connection, now, TaskKind.RECLAIM, kb, deadline_s)
            made += 1
    return made


async def begin(
    database: Database, claim: TaskClaim, policy: ReclaimPolicy, *, size: int = counting.PIECE
) -> list[StoredRevision]:
    # durable: a power cut must not bring back a release whose rows were dropped
    due = await database.write(lambda c, now: _begin(c, now, claim, policy), durable=True)
    for revision in due:  # what somebody stopped in the middle of is due again
        await counting.drop(database, revision.kb_revision, size=size)
    return due


def _begin(
    connection: Connection, now: float, claim: TaskClaim, policy: ReclaimPolicy
) -> list[StoredRevision]:
    held(connection, claim)
    locked_kb(connection, claim.kb_id)
    due = connection.execute(
        select(
            releases,
            embedding_spaces.c.model,
            embedding_spaces.c.dimension,
            embedding_spaces.c.text_form,
        )
        .join(embedding_spaces, embedding_spaces.c.space_id == releases.c.space_id)
        .where(releases.c.kb_id == claim.kb_id, _due(now, policy))
        .order_by(releases.c.seq)
    ).all()
    for row in due:
        _reclaim(connection, now, row)
    return [references.stored_revision(row) for row in due]


def _reclaim(connection: Connection, now: float, row: Row[Any]) -> None:
    if row.state != ReleaseState.RECLAIMED.value:
        check_release_transition(ReleaseState(row.state), ReleaseState.RECLAIMED)
    if row.reclaimed_at is None:
        connection.execute(
            update(releases)
            .where(releases.c.release_id == row.release_id)
            .values(state=ReleaseState.RECLAIMED.value, reclaimed_at=now)
        )


def give_up(connection: Connection, now: float, release_id: str) -> str:
    """A restore can't bring it back; what there is of its rows is swept as of any other. The revision, which
    counts nothing from now on.
    """
    mine = select(releases).where(releases.c.release_id == release_id)
    locked_kb(connection, connection.execute(mine).one().kb_id)
    row = connection.execute(mine).one()
    _reclaim(connection, now, row)
    return str(row.kb_revision)


def swept(connection: Connection, now: float, claim: TaskClaim, revision: StoredRevision) -> None:
    held(connection, claim)
    connection.execute(
        update(releases).where(releases.c.release_id == revision.release_id).values(swept_at=now)
    )


def claim_sweep(connection: Connection, now: float, every_s: float) -> bool:
    insert_missing(connection, meta, [{"key": _SWEPT, "value": "0"}])
    last = connection.execute(select(meta.c.value).where(meta.c.key == _SWEPT).with_for_update()).scalar_one()
    if float(last) > now - every_s:
        return False
    connection.execute(update(meta).where(meta.c.key == _SWEPT).values(value=repr(now)))
    return True
