"""Document versions while they are built: state, manifest, the places of their vectors."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, exists, insert, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import references
from gateway.adapters.sql.claims import held, still_held
from gateway.adapters.sql.rows import batches, insert_missing, locked_kb, to_json
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    knowledge_bases,
    manifest,
    task_documents,
    tasks,
    vector_places,
)
from gateway.errors import IllegalTransition, NotFound
from gateway.ingest.task import TaskClaim, TaskState
from gateway.ingest.version import BuiltVersion, VectorPlace, VersionJob, validity
from gateway.release.model import VersionState, check_version_transition
from gateway.retrieval.risk import merged, needs_approval

_ENDED = (VersionState.READY.value, VersionState.FAILED.value)
_LIVE_TASKS = (TaskState.PENDING.value, TaskState.RUNNING.value)

_of_task = and_(
    task_documents.c.document_id == document_versions.c.document_id,
    task_documents.c.version == document_versions.c.version,
)
_UNFINISHED = (
    select(document_versions, documents.c.source)
    .join(task_documents, _of_task)
    .join(documents, documents.c.document_id == document_versions.c.document_id)
    .where(
        task_documents.c.task_id == bindparam("task_id"),
        document_versions.c.state.not_in(_ENDED),
    )
    .order_by(task_documents.c.position)
)
_PLACES = select(
    vector_places.c.text_hash,
    vector_places.c.object_key,
    vector_places.c.position,
    vector_places.c.made_by,
).where(
    vector_places.c.space_id == bindparam("space_id"),
    vector_places.c.text_hash.in_(bindparam("hashes", expanding=True)),
)


def unfinished(connection: Connection, claim: TaskClaim) -> list[VersionJob]:
    still_held(connection, claim)
    return [
        VersionJob(
            ref=DocumentRef(row.document_id, row.version),
            source=row.source,
            media_type=row.media_type,
            original_key=row.original_key,
            sensitivity=row.sensitivity,
            state=VersionState(row.state),
        )
        for row in connection.execute(_UNFINISHED, {"task_id": claim.task_id})
    ]


def advance(connection: Connection, claim: TaskClaim, ref: DocumentRef, state: VersionState) -> None:
    if state is VersionState.READY:
        raise IllegalTransition("a version becomes READY together with its manifest")
    _move(connection, claim, ref, state)


def complete(connection: Connection, claim: TaskClaim, built: BuiltVersion) -> None:
    done = _move(
        connection,
        claim,
        built.ref,
        VersionState.READY,
        **_said_and_found(connection, built),
        title=built.title,
        parser_version=built.parser_version,
        splitter_version=built.splitter_version,
        chunks_key=built.chunks_key,
    )
    if not done:
        return
    references.keep(connection, [built.chunks_key])
    _number_ready(connection, claim.kb_id, built.ref)
    _keep_manifest(connection, built)
    _keep_places(connection, claim, built.space_id, built.new_vectors)
    references.expect_places(connection, built)


def add_places(
    connection: Connection, claim: TaskClaim, space_id: str, made: Mapping[str, VectorPlace]
) -> None:
    held(connection, claim)
    _keep_places(connection, claim, space_id, made)


def _keep_places(
    connection: Connection, claim: TaskClaim, space_id: str, made: Mapping[str, VectorPlace]
) -> None:
    references.keep(connection, (place.object_key for place in made.values()))
    rows = [
        {
            "space_id": space_id,
            "text_hash": text_hash,
            "object_key": place.object_key,
            "position": place.position,
            "made_by": claim.task_id,
        }
        for text_hash, place in made.items()
    ]
    insert_missing(connection, vector_places, rows)


def _said_and_found(connection: Connection, built: BuiltVersion) -> Mapping[str, Any]:
    """What the importer said of the version, together with what was found in it."""
    given = connection.execute(
        select(
            document_versions.c.valid_from, document_versions.c.valid_until, document_versions.c.risk
        ).where(*_is(built.ref))
    ).one_or_none()
    if given is None:
        return {}
    valid_from, valid_until = validity(given.valid_from, given.valid_until, built)
    risk = merged(json.loads(given.risk), built.risk)
    return {
        "valid_from": valid_from,
        "valid_until": valid_until,
        "risk": to_json(list(risk)),
        "high_risk": needs_approval(risk),
    }


def _number_ready(connection: Connection, kb_id: str, ref: DocumentRef) -> None:
    number = locked_kb(connection, kb_id).ready_count + 1
    connection.execute(
        update(knowledge_bases).where(knowledge_bases.c.kb_id == kb_id).values(ready_count=number)
    )
    connection.execute(update(document_versions).where(*_is(ref)).values(ready_number=number))


def _keep_manifest(connection: Connection, built: BuiltVersion) -> None:
    version = {"document_id": built.ref.document_id, "version": built.ref.document_version}
    rows = [
        {
            **version,
            "chunk_index": entry.chunk_index,
            "chunk_id": entry.chunk_id,
            "content_hash": entry.content_hash,
            "text_hash": entry.text_hash,
        }
        for entry in built.manifest
    ]
    if rows:
        connection.execute(insert(manifest), rows)


def fail(connection: Connection, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None:
    _move(connection, claim, ref, VersionState.FAILED, error_reason=reason, error_detail=detail)


def abandon(connection: Connection, task_id: str, reason: str, detail: str) -> None:
    """Fails what the task leaves unbuilt, but for versions that another live task will build."""
    others = task_documents.alias("others")
    wanted = exists().where(
        others.c.document_id == document_versions.c.document_id,
        others.c.version == document_versions.c.version,
        others.c.task_id == tasks.c.task_id,
        tasks.c.task_id != task_id,
        tasks.c.state.in_(_LIVE_TASKS),
    )
    connection.execute(
        update(document_versions)
        .where(
            exists().where(task_documents.c.task_id == task_id, _of_task),
            document_versions.c.state.not_in(_ENDED),
            ~wanted,
        )
        .values(state=VersionState.FAILED.value, error_reason=reason, error_detail=detail)
    )


def _move(
    connection: Connection, claim: TaskClaim, ref: DocumentRef, state: VersionState, **values: Any
) -> bool:
    """False when it is there already: a replay, or a restart under a newer fence."""
    held(connection, claim)
    before = _claimed(connection, claim, ref)
    if before is state:
        values = {}
    else:
        check_version_transition(before, state)
    connection.execute(
        update(document_versions).where(*_is(ref)).values(state=state.value, fence=claim.fence, **values)
    )
    return before is not state


def _claimed(connection: Connection, claim: TaskClaim, ref: DocumentRef) -> VersionState:
    """The version's state. Raises NotFound unless it is one of the task's."""
    state = connection.execute(
        select(document_versions.c.state)
        .join(task_documents, _of_task)
        .where(task_documents.c.task_id == claim.task_id, *_is(ref))
    ).scalar_one_or_none()
    if state is None:
        raise NotFound()
    return VersionState(state)


def _is(ref: DocumentRef) -> tuple[Any, ...]:
    return (
        document_versions.c.document_id == ref.document_id,
        document_versions.c.version == ref.document_version,
    )


def error_of(row: Row[Any]) -> str | None:
    """A version's error for a person."""
    return None if row.error_reason is None else f"{row.error_reason}: {row.error_detail}"


def places(connection: Connection, space_id: str, text_hashes: Sequence[str]) -> Mapping[str, VectorPlace]:
    return {
        text_hash: VectorPlace(object_key, position, made_by)
        for batch in batches(text_hashes)
        for text_hash, object_key, position, made_by in connection.execute(
            _PLACES, {"space_id": space_id, "hashes": list(batch)}
        )
    }
