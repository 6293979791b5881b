"""References: which objects the catalog needs, and how those that it doesn't are taken away safely.

An object's key in ``condemned`` is a lock on it that outlives the transaction. Whoever is about to refer to
an object puts its key there for as long as his transaction lasts; who condemns one leaves it there until the
object is gone. The table's unique key makes the second wait for the first and then see what he did.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gateway.adapters.sql.rows import batches
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
from gateway.ingest.references import CHUNKS, ORIGINALS, VECTORS, Sentence, StoredRevision, owner_of
from gateway.ingest.version import BuiltVersion
from gateway.release.model import EmbeddingSpace, ReleaseState, VersionState

#: releases whose rows nobody will read again
OVER = (ReleaseState.FAILED.value, ReleaseState.RECLAIMED.value)
_UNBUILT = (VersionState.PENDING.value, VersionState.BUILDING.value, VersionState.VALIDATING.value)
_TRY_AGAIN_MS = 1_000
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


def keep(connection: Connection, keys: Iterable[str]) -> None:
    """For whoever is about to refer to these objects; held until the transaction ends.

    Raises ObjectStoreUnavailable when one is being taken away: put it again, and then refer to it.
    """
    wanted = sorted(set(keys))
    if len(_entered(connection, _NOBODY_SEES, wanted)) < len(wanted):
        raise ObjectStoreUnavailable(
            "what was stored is just being cleaned up; send it again", retry_after_ms=_TRY_AGAIN_MS
        )
    _remove(connection, wanted)


def expect_places(connection: Connection, built: BuiltVersion) -> None:
    """That nobody took away vectors that the version counts on; held until the transaction ends. After
    ``keep``: who condemns takes keys first and places then.

    Raises ObjectStoreUnavailable: the next attempt embeds the texts again.
    """
    wanted = sorted({entry.text_hash for entry in built.manifest})
    for batch in batches(wanted):
        found = connection.execute(
            select(vector_places.c.text_hash)
            .where(vector_places.c.space_id == built.space_id, vector_places.c.text_hash.in_(batch))
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
    busy = [key for key in wanted if key not in mine]
    return Sentence(now, tuple(doomed), tuple(needed), tuple(busy))


def _entered(connection: Connection, now: float, keys: Sequence[str]) -> set[str]:
    """Those of the keys that weren't there; waits for transactions that have just put or removed them."""
    build = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    entered: set[str] = set()
    for batch in batches(keys):
        made = connection.execute(
            build(condemned)
            .values([{"object_key": key, "at": now} for key in batch])
            .on_conflict_do_nothing()
            .returning(condemned.c.object_key)
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
