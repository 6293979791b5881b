"""Releases while they are built, and as requests and operators read them."""

import dataclasses
import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, select, update

from gateway.access.authorizer import DocumentRef
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import padded, to_json
from gateway.adapters.sql.tables import embedding_spaces, knowledge_bases, release_documents, releases
from gateway.errors import IllegalTransition, InvalidField, NotFound
from gateway.ingest.task import TaskClaim
from gateway.release.model import (
    EmbeddingSpace,
    GateFit,
    KnowledgeBaseRecord,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
    RetrievalRelease,
    check_release_transition,
)

_UNFINISHED = (ReleaseState.PENDING, ReleaseState.BUILDING, ReleaseState.VALIDATING)
#: where a worker may take a release; ACTIVE, RETIRED and RECLAIMED have functions of their own
_BUILD_STATES = frozenset({ReleaseState.VALIDATING, ReleaseState.READY, ReleaseState.FAILED})

_GATE_PARTS = frozenset(part.name for part in dataclasses.fields(GateFit))

_ACTIVE = (
    select(
        knowledge_bases.c.tenant,
        knowledge_bases.c.kb_id,
        releases.c.release_id,
        knowledge_bases.c.name,
        releases.c.kb_revision,
        knowledge_bases.c.release_sequence,
        embedding_spaces.c.space_id,
        embedding_spaces.c.model,
        embedding_spaces.c.dimension,
        embedding_spaces.c.text_form,
        releases.c.config,
        releases.c.model_adapter,
    )
    .select_from(
        knowledge_bases.join(
            releases,
            and_(
                releases.c.release_id == knowledge_bases.c.active_release_id,
                releases.c.kb_id == knowledge_bases.c.kb_id,
            ),
        ).join(embedding_spaces, embedding_spaces.c.space_id == releases.c.space_id)
    )
    .where(knowledge_bases.c.kb_id.in_(bindparam("kb_ids", expanding=True)))
)
_ACTIVE_SPACES = select(releases.c.space_id).where(releases.c.state == ReleaseState.ACTIVE.value).distinct()
_RECORDS = select(releases, knowledge_bases.c.name.label("knowledge_base")).join(
    knowledge_bases, knowledge_bases.c.kb_id == releases.c.kb_id
)


def active(
    connection: Connection, keys: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], RetrievalRelease | None]:
    """For each (tenant, kb_id); None when it has none, or the knowledge base is another tenant's."""
    found = connection.execute(_ACTIVE, {"kb_ids": padded([kb_id for _, kb_id in keys])})
    known = {(row.tenant, row.kb_id): _active(row) for row in found}
    return {key: known.get(key) for key in keys}


def _active(row: Row[*tuple[Any, ...]]) -> RetrievalRelease:
    space = EmbeddingSpace(row.space_id, row.model, row.dimension, row.text_form)
    return RetrievalRelease(
        release_id=row.release_id,
        tenant=row.tenant,
        kb_id=row.kb_id,
        knowledge_base=row.name,
        kb_revision=row.kb_revision,
        sequence=row.release_sequence,
        space=space,
        collection=space.collection,
        config=config_from(row.config),
        model=row.model_adapter,
    )


def active_spaces(connection: Connection) -> frozenset[str]:
    """The ids of the spaces that active releases were embedded in."""
    return frozenset(connection.execute(_ACTIVE_SPACES).scalars())


def documents_in(
    connection: Connection, tenant: str, release_id: str, classes: Collection[int], limit: int
) -> list[DocumentRef]:
    """By their ids."""
    held_there = release_documents.c
    rows = connection.execute(
        select(held_there.document_id, held_there.version)
        .join(releases, releases.c.release_id == held_there.release_id)
        .where(
            releases.c.release_id == release_id,
            releases.c.tenant == tenant,
            held_there.acl_class.in_(sorted(classes)),
        )
        .order_by(held_there.document_id)
        .limit(limit)
    )
    return [DocumentRef(*row) for row in rows]


def config_text(config: RetrievalConfig) -> str:
    """The same text for the same config, so that what is stored can be compared with it."""
    stored = dataclasses.asdict(config)
    if not config.gates:  # as it was written before there were any
        del stored["gates"]
    for gate in stored.get("gates", ()):
        if not gate["script"]:  # likewise
            del gate["script"]
    return to_json(stored)


@functools.lru_cache(maxsize=256)
def config_from(text: str) -> RetrievalConfig:
    stored = json.loads(text)
    return RetrievalConfig(**{**stored, "gates": tuple(map(_gate_from, stored.get("gates", ())))})


def _gate_from(stored: dict[str, Any]) -> GateFit:
    """A part that only a newer version knows becomes a weight that this one doesn't: it decides nothing."""
    known = {name: value for name, value in stored.items() if name in _GATE_PARTS}
    newer = [(name, 0.0) for name in sorted(stored.keys() - known.keys())]
    return GateFit(**{**known, "weights": (*map(tuple, stored["weights"]), *newer)})


def advance(
    connection: Connection,
    claim: TaskClaim,
    release_id: str,
    state: ReleaseState,
    barrier: Mapping[str, object] | None,
    error: str | None,
) -> None:
    held(connection, claim)
    mine = (releases.c.release_id == release_id, releases.c.task_id == claim.task_id)
    before = connection.execute(select(releases.c.state).where(*mine)).scalar_one_or_none()
    if before is None:
        raise NotFound()
    if before == state.value:
        return
    check_release_transition(ReleaseState(before), state)
    if state not in _BUILD_STATES:
        raise IllegalTransition(f"building a release does not make it {state}")
    kept = {} if barrier is None else {"barrier": to_json(dict(barrier))}
    connection.execute(update(releases).where(*mine).values(state=state.value, error=error, **kept))


def abandon(connection: Connection, task_id: str, error: str) -> None:
    """Fails what the task has begun and not finished, so that its rows are swept."""
    connection.execute(
        update(releases)
        .where(
            releases.c.task_id == task_id,
            releases.c.state.in_([state.value for state in _UNFINISHED]),
        )
        .values(state=ReleaseState.FAILED.value, error=error)
    )


def listed(
    connection: Connection, tenant: str, knowledge_base: str, limit: int | None, before: str | None
) -> list[ReleaseRecord]:
    """Newest first. Raises InvalidField when ``before`` is no release of the knowledge base."""
    wanted = _RECORDS.where(knowledge_bases.c.tenant == tenant, knowledge_bases.c.name == knowledge_base)
    if before is not None:
        place = wanted.with_only_columns(releases.c.seq).where(releases.c.release_id == before)
        seq = connection.execute(place).scalar_one_or_none()
        if seq is None:
            raise InvalidField("before is the id of a release of the knowledge base")
        wanted = wanted.where(releases.c.seq < seq)
    rows = connection.execute(wanted.order_by(releases.c.seq.desc()).limit(limit))
    return [_record(row) for row in rows]


def knowledge_bases_of(connection: Connection, tenant: str) -> list[KnowledgeBaseRecord]:
    """By name, in order of code points."""
    rows = connection.execute(
        select(
            knowledge_bases.c.kb_id,
            knowledge_bases.c.name,
            knowledge_bases.c.release_sequence,
            releases.c.release_id,
            releases.c.space_id,
        )
        .outerjoin(releases, releases.c.release_id == knowledge_bases.c.active_release_id)
        .where(knowledge_bases.c.tenant == tenant)
    )
    return sorted((KnowledgeBaseRecord(*row) for row in rows), key=lambda record: record.name)


def one(connection: Connection, tenant: str, release_id: str) -> ReleaseRecord | None:
    row = connection.execute(
        _RECORDS.where(releases.c.release_id == release_id, releases.c.tenant == tenant)
    ).one_or_none()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> ReleaseRecord:
    return ReleaseRecord(
        release_id=row.release_id,
        tenant=row.tenant,
        kb_id=row.kb_id,
        knowledge_base=row.knowledge_base,
        kb_revision=row.kb_revision,
        state=ReleaseState(row.state),
        sequence=row.sequence,
        base_sequence=row.base_sequence,
        space_id=row.space_id,
        config=config_from(row.config),
        manifest_hash=row.manifest_hash,
        documents=row.documents,
        chunks=row.chunks,
        created_at=row.created_at,
        activated_at=row.activated_at,
        error=row.error,
        barrier=None if row.barrier is None else json.loads(row.barrier),
        model=row.model_adapter,
    )
