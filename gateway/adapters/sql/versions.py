"""Document versions while they are built: state, manifest, the places of their vectors."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, exists, insert, select, tuple_, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql import references, rejections
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
from gateway.retrieval.risk import REJECTED_BEFORE, merged, needs_approval

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
_others = task_documents.alias("others")
_ref = tuple_(document_versions.c.document_id, document_versions.c.version)
_CLAIMED: Select[Any] = (
    select(
        document_versions.c.document_id,
        document_versions.c.version,
        document_versions.c.state,
        document_versions.c.valid_from,
        document_versions.c.valid_until,
        document_versions.c.risk,
    )
    .join(task_documents, _of_task)
    .where(
        task_documents.c.task_id == bindparam("task_id"),
        _ref.in_(bindparam("refs", expanding=True)),
    )
)
_COMPLETE = update(document_versions).where(
    document_versions.c.document_id == bindparam("of_document"),
    document_versions.c.version == bindparam("of_version"),
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


def advance(
    connection: Connection, claim: TaskClaim, refs: Sequence[DocumentRef], state: VersionState
) -> None:
    if state is VersionState.READY:
        raise IllegalTransition("a version becomes READY together with its manifest")
    held(connection, claim)
    _check(_claimed(connection, claim, refs), state)
    _write(connection, claim, refs, state)


def complete(connection: Connection, now: float, claim: TaskClaim, built: Sequence[BuiltVersion]) -> None:
    held(connection, claim)
    rows = _claimed(connection, claim, [each.ref for each in built])
    moving = _check(rows, VersionState.READY)
    done = [each for each in built if each.ref in moving]
    if not done:
        return
    references.keep(connection, now, _files_of(done))
    first = _numbers(connection, claim.kb_id, len(done))
    repeated = rejections.repeated(connection, claim.kb_id, [each.ref for each in done])
    marked = [
        replace(each, risk=(*each.risk, REJECTED_BEFORE)) if each.ref in repeated else each for each in done
    ]
    numbered = enumerate(marked, start=first)
    connection.execute(
        _COMPLETE, [_outcome(claim, rows[each.ref], each, number) for number, each in numbered]
    )
    entries = [entry for each in done for entry in _manifest_of(each)]
    if entries:
        connection.execute(insert(manifest), entries)
    for space_id in {each.space_id for each in done}:
        _keep_vectors(connection, claim, space_id, [each for each in done if each.space_id == space_id])


def add_places(
    connection: Connection, now: float, claim: TaskClaim, space_id: str, made: Mapping[str, VectorPlace]
) -> None:
    held(connection, claim)
    references.keep(connection, now, (place.object_key for place in made.values()))
    _keep_places(connection, claim, space_id, made)


def _files_of(built: Sequence[BuiltVersion]) -> Iterator[str]:
    for each in built:
        yield each.chunks_key
        yield from (place.object_key for place in each.new_vectors.values())


def _keep_vectors(
    connection: Connection, claim: TaskClaim, space_id: str, built: Sequence[BuiltVersion]
) -> None:
    places: dict[str, VectorPlace] = {}
    for each in built:
        places = {**each.new_vectors, **places}
    _keep_places(connection, claim, space_id, places)
    references.expect_places(
        connection, space_id, (entry.text_hash for each in built for entry in each.manifest)
    )


def _keep_places(
    connection: Connection, claim: TaskClaim, space_id: str, made: Mapping[str, VectorPlace]
) -> None:
    """In an order that every worker keeps: two with the same new texts don't wait for each other."""
    rows = [
        {
            "space_id": space_id,
            "text_hash": text_hash,
            "object_key": place.object_key,
            "position": place.position,
            "made_by": claim.task_id,
        }
        for text_hash, place in sorted(made.items())
    ]
    insert_missing(connection, vector_places, rows)


def _outcome(claim: TaskClaim, given: Row[Any], built: BuiltVersion, ready_number: int) -> Mapping[str, Any]:
    """What the importer said of the version, together with what was found in it."""
    valid_from, valid_until = validity(given.valid_from, given.valid_until, built)
    risk = merged(json.loads(given.risk), built.risk)
    return {
        "of_document": built.ref.document_id,
        "of_version": built.ref.document_version,
        "fence": claim.fence,
        "state": VersionState.READY.value,
        "title": built.title,
        "parser_version": built.parser_version,
        "splitter_version": built.splitter_version,
        "chunks_key": built.chunks_key,
        "ready_number": ready_number,
        "valid_from": valid_from,
        "valid_until": valid_until,
        "risk": to_json(list(risk)),
        "high_risk": needs_approval(risk),
    }


def _numbers(connection: Connection, kb_id: str, count: int) -> int:
    """The first of ``count`` numbers in the order in which the knowledge base's versions become READY."""
    before = int(locked_kb(connection, kb_id).ready_count)
    connection.execute(
        update(knowledge_bases).where(knowledge_bases.c.kb_id == kb_id).values(ready_count=before + count)
    )
    return before + 1


def _manifest_of(built: BuiltVersion) -> Iterator[Mapping[str, Any]]:
    for entry in built.manifest:
        yield {
            "document_id": built.ref.document_id,
            "version": built.ref.document_version,
            "chunk_index": entry.chunk_index,
            "chunk_id": entry.chunk_id,
            "content_hash": entry.content_hash,
            "text_hash": entry.text_hash,
        }


def fail(connection: Connection, claim: TaskClaim, ref: DocumentRef, reason: str, detail: str) -> None:
    held(connection, claim)
    if _check(_claimed(connection, claim, [ref]), VersionState.FAILED):
        _write(connection, claim, [ref], VersionState.FAILED, error_reason=reason, error_detail=detail)


def abandon(connection: Connection, task_id: str, reason: str, detail: str) -> None:
    """Fails what the task leaves unbuilt, but for versions that another live task will build."""
    wanted = exists().where(
        _others.c.document_id == document_versions.c.document_id,
        _others.c.version == document_versions.c.version,
        _others.c.task_id == tasks.c.task_id,
        tasks.c.task_id != task_id,
        tasks.c.state.in_(_LIVE_TASKS),
    )
    mine = select(task_documents.c.document_id, task_documents.c.version).where(
        task_documents.c.task_id == task_id
    )
    connection.execute(
        update(document_versions)
        .where(
            _ref.in_(mine),
            document_versions.c.state.not_in(_ENDED),
            ~wanted,
        )
        .values(state=VersionState.FAILED.value, error_reason=reason, error_detail=detail)
    )


def _claimed(
    connection: Connection, claim: TaskClaim, refs: Sequence[DocumentRef]
) -> Mapping[DocumentRef, Row[Any]]:
    """States, and what importers said of the versions. Raises NotFound unless all are the task's."""
    found: dict[DocumentRef, Row[Any]] = {}
    for batch in batches(refs):
        rows = connection.execute(_CLAIMED, {"task_id": claim.task_id, "refs": _pairs(batch)})
        found |= {DocumentRef(row.document_id, row.version): row for row in rows}
    if not found.keys() >= set(refs):
        raise NotFound()
    return found


def _check(rows: Mapping[DocumentRef, Row[Any]], state: VersionState) -> set[DocumentRef]:
    """Those that aren't in the state yet: a replay, or a restart under a newer fence, finds some there.
    Raises IllegalTransition.
    """
    before = {ref: VersionState(row.state) for ref, row in rows.items()}
    moving = {ref for ref, was in before.items() if was is not state}
    for ref in moving:
        check_version_transition(before[ref], state)
    return moving


def _write(
    connection: Connection,
    claim: TaskClaim,
    refs: Sequence[DocumentRef],
    state: VersionState,
    **values: Any,
) -> None:
    for batch in batches(refs):
        connection.execute(
            update(document_versions)
            .where(_ref.in_(_pairs(batch)))
            .values(state=state.value, fence=claim.fence, **values)
        )


def _pairs(refs: Sequence[DocumentRef]) -> list[tuple[str, int]]:
    return [(ref.document_id, ref.document_version) for ref in refs]


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
