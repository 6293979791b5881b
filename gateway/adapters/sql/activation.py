"""Which release answers: activation, rollback, and the end of a release's life."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, exists, or_, select, update

from gateway.adapters.sql import askers, classes, configs, models, rejections, snapshots
from gateway.adapters.sql.claims import held
from gateway.adapters.sql.rows import bump_epoch, known_kb, locked_kb
from gateway.adapters.sql.snapshots import Stamp, may_be_released
from gateway.adapters.sql.tables import (
    document_versions,
    documents,
    knowledge_bases,
    release_documents,
    releases,
    revocations,
)
from gateway.errors import NotFound, ReleaseConflict
from gateway.ingest.plan import NO_EARLIER_MODEL, Activation, not_configured
from gateway.ingest.task import TaskClaim
from gateway.release.model import ReleaseState, VersionState, check_release_transition
from gateway.stream.revocation import RevocationKind


@dataclass(frozen=True, slots=True)
class AsBuilt:
    """Until ``stamp`` rises every document is as the release has it; ``same_classes``: and those in use stay
    so with it.
    """

    stamp: Stamp
    same_classes: bool


def activate(
    connection: Connection,
    now: float,
    tenant: str,
    release_id: str,
    expected_sequence: int | None,
    claim: TaskClaim | None,
    seen: AsBuilt | None,
) -> Activation:
    """``seen``: what a look beside the writer has told of it."""
    if claim is not None:
        held(connection, claim)
        askers.refuse_revoked(connection, claim.task_id)
    kb = locked_kb(connection, _owned(connection, tenant, release_id).kb_id)
    release = _owned(connection, tenant, release_id)  # again, now that nobody else can change it
    if release.state == ReleaseState.ACTIVE.value:
        return Activation(kb.name, release.kb_revision, kb.release_sequence)
    check_release_transition(ReleaseState(release.state), ReleaseState.ACTIVE)
    if release.state == ReleaseState.RETIRED.value:
        raise ReleaseConflict("a retired release comes back by a rollback")
    expected = release.base_sequence if expected_sequence is None else expected_sequence
    if kb.release_sequence != expected:
        raise ReleaseConflict("another release was activated in the meantime")
    known = seen if seen is not None and seen.stamp == snapshots.stamp_of(connection, kb.kb_id) else None
    if known is None and _has_changed_documents(connection, tenant, release_id):
        raise ReleaseConflict("a document of this release was deleted, revoked or got another ACL")
    return _switch(connection, now, kb, release, same_classes=known is not None and known.same_classes)


def as_built(connection: Connection, tenant: str, release_id: str) -> AsBuilt | None:
    """Of this moment; None when a document is another one by now."""
    kb_id = connection.execute(
        select(releases.c.kb_id).where(releases.c.release_id == release_id, releases.c.tenant == tenant)
    ).scalar_one_or_none()
    if kb_id is None:
        return None
    stamp = snapshots.stamp_of(connection, kb_id)  # first: what changes after it raises it
    if _has_changed_documents(connection, tenant, release_id):
        return None
    # of the classes in use those alone go with what is active that its chunks still carry
    return AsBuilt(stamp, not classes.is_narrowed(connection, tenant, kb_id))


def _owned(connection: Connection, tenant: str, release_id: str) -> Row[Any]:
    """Raises NotFound."""
    row = connection.execute(
        select(releases).where(releases.c.release_id == release_id, releases.c.tenant == tenant)
    ).one_or_none()
    if row is None:
        raise NotFound()
    return row


def _has_changed_documents(connection: Connection, tenant: str, release_id: str) -> bool:
    revoked = exists(
        select(revocations.c.seq).where(
            revocations.c.tenant == tenant,
            revocations.c.kind == RevocationKind.DOCUMENT.value,
            revocations.c.subject == documents.c.document_id,
            revocations.c.lifted_at.is_(None),
        )
    )
    changed = (
        select(release_documents.c.document_id)
        .join(documents, documents.c.document_id == release_documents.c.document_id)
        .join(
            document_versions,
            and_(
                document_versions.c.document_id == release_documents.c.document_id,
                document_versions.c.version == release_documents.c.version,
            ),
        )
        .where(
            release_documents.c.release_id == release_id,
            or_(
                documents.c.deleted_at.is_not(None),
                documents.c.acl_class != release_documents.c.acl_class,
                document_versions.c.withdrawn_at.is_not(None),
                ~may_be_released,
                revoked,
            ),
        )
        .limit(1)
    )
    return connection.execute(changed).one_or_none() is not None


def _switch(
    connection: Connection, now: float, kb: Row[Any], release: Row[Any], *, same_classes: bool = False
) -> Activation:
    """Under a new, higher sequence; the release that was active until now is retired. Readers look at the
    classes again unless they are known to stay: to find that out here would mean to read every document.
    """
    sequence = _next_sequence(connection, kb, release.release_id)
    configs.keep(connection, now, sequence, release, config=release.config, model=release.model_adapter)
    connection.execute(
        update(releases)
        .where(releases.c.kb_id == kb.kb_id, releases.c.state == ReleaseState.ACTIVE.value)
        .values(state=ReleaseState.RETIRED.value, retired_sequence=sequence, retired_at=now)
    )
    connection.execute(
        update(releases)
        .where(releases.c.release_id == release.release_id)
        .values(
            state=ReleaseState.ACTIVE.value,
            sequence=sequence,
            activated_at=now,
            retired_sequence=None,
            retired_at=None,
        )
    )
    if not same_classes:
        classes.bump_revision(connection, kb.kb_id)
    return Activation(kb.name, release.kb_revision, sequence)


def _next_sequence(connection: Connection, kb: Row[Any], release_id: str) -> int:
    """The knowledge base's next one, from which on this release is active. Raises ReleaseConflict."""
    sequence: int = kb.release_sequence + 1
    moved = connection.execute(
        update(knowledge_bases)
        .where(knowledge_bases.c.kb_id == kb.kb_id, knowledge_bases.c.release_sequence == kb.release_sequence)
        .values(release_sequence=sequence, active_release_id=release_id)
    )
    if moved.rowcount != 1:
        raise ReleaseConflict("another release was activated in the meantime")
    return sequence


def roll_back_config(
    connection: Connection, now: float, tenant: str, knowledge_base: str, expected_sequence: int | None
) -> Activation:
    kb = _expected_kb(connection, tenant, knowledge_base, expected_sequence)
    release = _active(connection, kb)
    earlier = None if release is None else configs.before(connection, kb, release)
    if release is None or earlier is None:
        raise ReleaseConflict("there is no earlier retrieval config to go back to")
    sequence = _next_sequence(connection, kb, release.release_id)
    configs.keep(
        connection,
        now,
        sequence,
        release,
        config=earlier,
        model=release.model_adapter,
        config_left=release.config,
    )
    connection.execute(
        update(releases)
        .where(releases.c.release_id == release.release_id)
        .values(config=earlier, sequence=sequence)
    )
    return Activation(kb.name, release.kb_revision, sequence)


def roll_back_model(
    connection: Connection,
    now: float,
    tenant: str,
    knowledge_base: str,
    expected_sequence: int | None,
    configured: Collection[str],
) -> Activation:
    kb = _expected_kb(connection, tenant, knowledge_base, expected_sequence)
    release = _active(connection, kb)
    earlier = None if release is None else models.before(connection, kb, release)
    if release is None or earlier is None:
        raise ReleaseConflict(NO_EARLIER_MODEL)
    if earlier not in configured:
        raise ReleaseConflict(not_configured(earlier))
    sequence = _next_sequence(connection, kb, release.release_id)
    configs.keep(
        connection,
        now,
        sequence,
        release,
        config=release.config,
        model=earlier,
        model_left=release.model_adapter,
    )
    connection.execute(
        update(releases)
        .where(releases.c.release_id == release.release_id)
        .values(model_adapter=earlier, sequence=sequence)
    )
    return Activation(kb.name, release.kb_revision, sequence)


def _active(connection: Connection, kb: Row[Any]) -> Row[Any] | None:
    return connection.execute(
        select(releases).where(
            releases.c.release_id == kb.active_release_id, releases.c.state == ReleaseState.ACTIVE.value
        )
    ).one_or_none()


def _expected_kb(
    connection: Connection, tenant: str, knowledge_base: str, expected_sequence: int | None
) -> Row[Any]:
    """Locked. Raises KnowledgeBaseNotFound, ReleaseConflict."""
    kb = known_kb(connection, tenant, knowledge_base)
    if expected_sequence is not None and kb.release_sequence != expected_sequence:
        raise ReleaseConflict("another release was activated in the meantime")
    return kb


def roll_back(
    connection: Connection, now: float, tenant: str, knowledge_base: str, expected_sequence: int | None
) -> Activation:
    kb = _expected_kb(connection, tenant, knowledge_base, expected_sequence)
    target = connection.execute(
        select(releases)
        .where(
            releases.c.kb_id == kb.kb_id,
            releases.c.state == ReleaseState.RETIRED.value,
            releases.c.retired_sequence.is_not(None),
        )
        .order_by(releases.c.retired_sequence.desc())
        .limit(1)
    ).one_or_none()
    if target is None:
        raise ReleaseConflict("there is no earlier release to go back to")
    _withdraw_newer(connection, now, kb.kb_id, target)
    rejections.withdraw(connection, now, target.release_id)
    activation = _switch(connection, now, kb, target)
    _leave_behind(connection, kb, target)
    bump_epoch(connection, tenant)  # last: whoever revokes in this tenant waits for its row
    return activation


def _leave_behind(connection: Connection, kb: Row[Any], target: Row[Any]) -> None:
    """No later rollback goes to the release gone back from, nor to any that holds withdrawn versions."""
    connection.execute(
        update(releases)
        .where(
            releases.c.kb_id == kb.kb_id,
            releases.c.state == ReleaseState.RETIRED.value,
            or_(
                releases.c.release_id == kb.active_release_id,
                releases.c.ready_count > target.ready_count,
            ),
        )
        .values(retired_sequence=None)
    )


def _withdraw_newer(connection: Connection, now: float, kb_id: str, snapshot: Row[Any]) -> None:
    """Versions that became READY after the snapshot was taken."""
    of_kb = select(documents.c.document_id).where(documents.c.kb_id == kb_id)
    connection.execute(
        update(document_versions)
        .where(
            document_versions.c.document_id.in_(of_kb),
            document_versions.c.state == VersionState.READY.value,
            document_versions.c.ready_number > snapshot.ready_count,
            document_versions.c.withdrawn_at.is_(None),
        )
        .values(withdrawn_at=now)
    )


def mark_reclaimed(connection: Connection, tenant: str, release_id: str) -> str:
    """The revision that counts nothing from now on."""
    locked_kb(connection, _owned(connection, tenant, release_id).kb_id)
    release = _owned(connection, tenant, release_id)
    check_release_transition(ReleaseState(release.state), ReleaseState.RECLAIMED)
    connection.execute(
        update(releases).where(releases.c.release_id == release_id).values(state=ReleaseState.RECLAIMED.value)
    )
    return str(release.kb_revision)
