"""References: which objects the catalog needs, and how those that it doesn't are taken away safely.

An object's key in ``condemned`` is a lock on it that outlives the transaction. Whoever is about to refer to
an object puts its key there for as long as his transaction lasts; who condemns one leaves it there until the
object is gone. The table's unique key makes the second wait for the first and then see what he did.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.adapters.sql import snapshots
from gateway.adapters.sql.rows import batches, placed
from gateway.adapters.sql.tables import (
    condemned,
    document_versions,
    knowledge_bases,
    manifest,
    release_documents,
    releases,
    vector_places,
)
from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.references import (
    CHUNKS,
    FILES_GONE,
    ORIGINALS,
    TAKEOVER_S,
    VECTORS,
    Sentence,
    StoredRevision,
    owner_of,
)
from gateway.release.model import EmbeddingSpace, ReleaseState, VersionState

#: releases whose rows nobody will read again
OVER = (ReleaseState.FAILED.value, ReleaseState.RECLAIMED.value)
_UNBUILT = (VersionState.PENDING.value, VersionState.BUILDING.value, VersionState.VALIDATING.value)
_TRY_AGAIN_S = 1.0
#: the moment of an entry that is gone before its transaction ends
_NOBODY_SEES = 0.0

_in_a_release = exists(
    select(releases.c.release_id)
    .join(release_documents, release_documents.c.release_id == releases.c.release_id)
    .where(
        release_documents.c.document_id == document_versions.c.document_id,
        release_documents.c.version == document_versions.c.version,
        releases.c.state.not_in(OVER),
    )
)
_superseded = exists(
    select(release_documents.c.version)
    .join(knowledge_bases, knowledge_bases.c.active_release_id == release_documents.c.release_id)
    .where(
        release_documents.c.document_id == document_versions.c.document_id,
        release_documents.c.version > document_versions.c.version,
    )
)


def is_needed(withdrawn_since: float) -> ColumnElement[bool]:
    """That a row of ``document_versions`` may yet be built, released, gone back to or rebuilt."""
    return and_(
        document_versions.c.deleted_at.is_(None),
        or_(
            document_versions.c.state.in_(_UNBUILT),
            _in_a_release,
            and_(
                document_versions.c.state == VersionState.READY.value,
                or_(
                    and_(document_versions.c.withdrawn_at.is_(None), ~_superseded),
                    document_versions.c.withdrawn_at > withdrawn_since,
                ),
            ),
        ),
    )


def stored_revision(row: Row[Any]) -> StoredRevision:
    """Of a release's row that has its space's columns too."""
    space = EmbeddingSpace(row.space_id, row.model, row.dimension, row.text_form)
    return StoredRevision(row.release_id, row.kb_revision, space)


def keep(connection: Connection, now: float, keys: Iterable[str], *, looks_again: bool = False) -> None:
    """For whoever is about to refer to these objects; held until the transaction ends. ``looks_again``: he
    puts what isn't there any more once more afterwards, so what nobody came to bury may be his.

    Raises ObjectStoreUnavailable when one is being taken away: put it again, and then refer to it.
    """
    wanted = sorted(set(keys))
    mine = _entered(connection, _NOBODY_SEES, wanted)
    if looks_again and len(mine) < len(wanted):
        mine |= _taken_over(connection, now, wanted, now - TAKEOVER_S)
    if len(mine) < len(wanted):
        left_s = _condemned_at(connection, set(wanted) - mine) + TAKEOVER_S - now
        raise ObjectStoreUnavailable(
            "what was stored is just being cleaned up; send it again",
            retry_after_ms=math.ceil(max(left_s, _TRY_AGAIN_S) * 1000),
        )
    _remove(connection, wanted)


def _condemned_at(connection: Connection, keys: Iterable[str]) -> float:
    """The last of them."""
    moments = (
        connection.execute(select(func.max(condemned.c.at)).where(condemned.c.object_key.in_(batch))).scalar()
        for batch in batches(sorted(keys))
    )
    return max((moment for moment in moments if moment is not None), default=0.0)


def expect_places(connection: Connection, space_id: str, text_hashes: Iterable[str]) -> None:
    """That nobody took away vectors that versions count on; held until the transaction ends. After
    ``keep``: who condemns takes keys first and places then.

    Raises ObjectStoreUnavailable: the next attempt embeds the texts again.
    """
    wanted = sorted(set(text_hashes))
    for batch in batches(wanted):
        found = connection.execute(
            select(vector_places.c.text_hash)
            .where(vector_places.c.space_id == space_id, vector_places.c.text_hash.in_(batch))
            .order_by(vector_places.c.text_hash)
            .with_for_update(read=True)
        ).all()
        if len(found) < len(batch):
            raise ObjectStoreUnavailable("vectors of known texts were cleaned up meanwhile")


def condemn(
    connection: Connection, now: float, keys: Sequence[str], window_s: float, takeover_s: float
) -> Sentence:
    wanted = sorted(set(keys))
    mine = _entered(connection, now, wanted) | _taken_over(connection, now, wanted, now - takeover_s)
    needed = [key for key in wanted if key in mine and _has_need(connection, key, now - window_s)]
    _remove(connection, needed)
    doomed = [key for key in wanted if key in mine and key not in needed]
    for batch in batches(doomed):
        connection.execute(delete(vector_places).where(vector_places.c.object_key.in_(batch)))
    _withdraw_versions_of(connection, doomed)
    busy = [key for key in wanted if key not in mine]
    return Sentence(now, tuple(doomed), tuple(needed), tuple(busy))


def _withdraw_versions_of(connection: Connection, doomed: Sequence[str]) -> None:
    """When a newer version is rejected, no release falls back to one whose files are gone."""
    ready = and_(
        document_versions.c.state == VersionState.READY.value, document_versions.c.withdrawn_at.is_(None)
    )
    originals = [key for key in doomed if key.startswith(f"{ORIGINALS}/")]
    owners = {key: owner for key in doomed if key.startswith(f"{CHUNKS}/") and (owner := owner_of(key))}
    withdrawing = (
        update(document_versions)
        .where(ready)
        .values(withdrawn_at=FILES_GONE)
        .returning(document_versions.c.document_id)
    )
    withdrawn: set[str] = set()
    for batch in batches(originals):
        withdrawn.update(
            connection.execute(withdrawing.where(document_versions.c.original_key.in_(batch))).scalars()
        )
    for key, owner in owners.items():
        mine = withdrawing.where(
            document_versions.c.document_id == owner.document_id,
            document_versions.c.version == owner.document_version,
            document_versions.c.chunks_key == key,
        )
        withdrawn.update(connection.execute(mine).scalars())
    for kb_id in dict(placed(connection, withdrawn)):
        snapshots.count_judged(connection, kb_id)


def _entered(connection: Connection, now: float, keys: Sequence[str]) -> set[str]:
    """Those of the keys that weren't there; waits for transactions that have just put or removed them."""
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    entered: set[str] = set()
    for batch in batches(keys):
        made = connection.execute(
            build(condemned).on_conflict_do_nothing().returning(condemned.c.object_key),
            [{"object_key": key, "at": now} for key in batch],
        )
        entered.update(made.scalars())
    return entered


def _taken_over(connection: Connection, now: float, keys: Sequence[str], until: float) -> set[str]:
    taken: set[str] = set()
    for batch in batches(keys):
        moved = connection.execute(
            update(condemned)
            .where(condemned.c.object_key.in_(batch), condemned.c.at <= until)
            .values(at=now)
            .returning(condemned.c.object_key)
        )
        taken.update(moved.scalars())
    return taken


def _remove(connection: Connection, keys: Sequence[str]) -> None:
    for batch in batches(keys):
        connection.execute(delete(condemned).where(condemned.c.object_key.in_(batch)))


def _has_need(connection: Connection, key: str, withdrawn_since: float) -> bool:
    kind = key.partition("/")[0]
    needed = is_needed(withdrawn_since)
    if kind == ORIGINALS:
        asked = select(document_versions.c.version).where(document_versions.c.original_key == key, needed)
    elif kind == CHUNKS and (owner := owner_of(key)) is not None:
        asked = select(document_versions.c.version).where(
            document_versions.c.document_id == owner.document_id,
            document_versions.c.version == owner.document_version,
            or_(document_versions.c.chunks_key == key, document_versions.c.state.in_(_UNBUILT)),
            needed,
        )
    elif kind == VECTORS and owner_of(key) is not None:
        _hold_places(connection, key)
        asked = _readers_of(key, needed)
    else:
        return True
    return connection.execute(asked.limit(1)).first() is not None


def _hold_places(connection: Connection, key: str) -> None:
    """Until the transaction ends nobody counts on these vectors; whoever just did is waited for."""
    connection.execute(
        select(vector_places.c.text_hash)
        .where(vector_places.c.object_key == key)
        .order_by(vector_places.c.text_hash)
        .with_for_update()
    ).all()


def _readers_of(key: str, needed: ColumnElement[bool]) -> Any:
    """The versions that have a text with its vector in this file."""
    return (
        select(document_versions.c.version)
        .join(
            manifest,
            and_(
                manifest.c.document_id == document_versions.c.document_id,
                manifest.c.version == document_versions.c.version,
            ),
        )
        .join(vector_places, vector_places.c.text_hash == manifest.c.text_hash)
        .where(vector_places.c.object_key == key, needed)
    )


def bury(connection: Connection, sentence: Sentence) -> None:
    for batch in batches(sentence.condemned):
        connection.execute(
            delete(condemned).where(condemned.c.object_key.in_(batch), condemned.c.at == sentence.at)
        )


def left_condemned(connection: Connection, now: float, takeover_s: float) -> list[str]:
    rows = select(condemned.c.object_key).where(condemned.c.at <= now - takeover_s)
    return list(connection.execute(rows.order_by(condemned.c.object_key).limit(1000)).scalars())
