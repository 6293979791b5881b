"""The journal's side of the catalog: entries that wait in the outbox, and entries done again by a restore."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, or_, select, update

from gateway.access.classes import Acl
from gateway.adapters.sql import api_keys, documents, rejections, revocations, rights
from gateway.adapters.sql.access import INCARNATION
from gateway.adapters.sql.rows import bump_epoch, insert_missing
from gateway.adapters.sql.server import database_time
from gateway.adapters.sql.tables import journal_replays, meta, outbox
from gateway.adapters.sql.tables import revocations as revocation_rows
from gateway.errors import BackupDamaged, NotFound
from gateway.ingest.governance import AclChange
from gateway.ingest.journal import TOPIC_PREFIX, JournalEntry
from gateway.stream.revocation import RevocationKind

#: who did it, in the audit trail
_SUBJECT = "restore"
_TASK_DEADLINE_S = 24 * 3600.0
_OURS = outbox.c.topic.startswith(TOPIC_PREFIX, autoescape=True)
_UNSENT = (outbox.c.sent_at.is_(None), _OURS)


def lag_s(connection: Connection) -> float:
    """The age of the oldest entry that isn't in the journal; 0 when all are."""
    oldest = connection.execute(select(func.min(outbox.c.created_at)).where(*_UNSENT)).scalar_one()
    return 0.0 if oldest is None else max(0.0, database_time(connection) - oldest)


def is_waiting(connection: Connection) -> bool:
    """Whether there is anything to claim: asked first, because a claim takes the write lock."""
    return connection.execute(select(outbox.c.seq).where(*_UNSENT).limit(1)).one_or_none() is not None


def claim(connection: Connection, now: float, lease_s: float, limit: int) -> list[JournalEntry]:
    of = incarnation(connection)
    if not of:
        return []
    free = or_(outbox.c.claimed_until.is_(None), outbox.c.claimed_until <= now)
    rows = connection.execute(
        select(outbox)
        .where(*_UNSENT, free)
        .order_by(outbox.c.seq)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    _change(connection, [row.seq for row in rows], claimed_until=now + lease_s)
    return [_entry(of, row) for row in rows]


def sent(connection: Connection, now: float, entries: Collection[JournalEntry]) -> None:
    _change(connection, [entry.seq for entry in entries], sent_at=now, claimed_until=None)


def _change(connection: Connection, seqs: Sequence[int], **values: Any) -> None:
    if seqs:
        connection.execute(update(outbox).where(outbox.c.seq.in_(seqs)).values(**values))


def incarnation(connection: Connection) -> str:
    """Whose acts these are; empty while a restore is unconfirmed."""
    return str(connection.execute(select(meta.c.value).where(meta.c.key == INCARNATION)).scalar_one())


def _entry(of: str, row: Row[Any]) -> JournalEntry:
    kind = row.topic.removeprefix(TOPIC_PREFIX)
    return JournalEntry(of, row.seq, kind, row.created_at, json.loads(row.payload))


def unsent(connection: Connection, of: str) -> list[JournalEntry]:
    """What a restored catalog's earlier incarnation may not have sent any more, under its names."""
    rows = connection.execute(select(outbox).where(*_UNSENT).order_by(outbox.c.seq))
    return [_entry(of, row) for row in rows]


def sent_since(connection: Connection, since: float) -> frozenset[int]:
    """Entries of this incarnation, left since then, that the journal holds."""
    known = select(outbox.c.seq).where(_OURS, outbox.c.sent_at.is_not(None), outbox.c.created_at > since)
    return frozenset(connection.execute(known).scalars())


def forget_sent(connection: Connection) -> None:
    """For a catalog that is about to get another incarnation: they are in the journal under the old one."""
    connection.execute(delete(outbox).where(_OURS, outbox.c.sent_at.is_not(None)))


# after a restore


def hold(connection: Connection, now: float, of: str) -> None:
    """What the backup's own acts left in the outbox counts as done: a replay passes it over."""
    rows = connection.execute(select(outbox.c.seq).where(_OURS)).scalars().all()
    _mark(connection, now, [(of, seq) for seq in rows])


def replay(connection: Connection, now: float, entry: JournalEntry) -> bool:
    """Does the act again; False when this catalog holds it already. Raises BackupDamaged."""
    if connection.execute(select(journal_replays).where(_is(entry))).one_or_none() is not None:
        return False
    newest = connection.execute(select(func.max(outbox.c.seq))).scalar_one() or 0
    try:
        _ACTS[entry.kind](connection, now, entry.payload)
    except (KeyError, ValueError, TypeError) as error:
        raise BackupDamaged(f"the journal's {entry.name} can't be done again") from error
    # the journal has this act already, under its old name
    connection.execute(delete(outbox).where(outbox.c.seq > newest, _OURS))
    _mark(connection, now, [(entry.incarnation, entry.seq)])
    return True


def _is(entry: JournalEntry) -> ColumnElement[bool]:
    return and_(
        journal_replays.c.incarnation == entry.incarnation,
        journal_replays.c.seq == entry.seq,
    )


def _mark(connection: Connection, now: float, names: Sequence[tuple[str, int]]) -> None:
    rows = [{"incarnation": of, "seq": seq, "replayed_at": now} for of, seq in names]
    insert_missing(connection, journal_replays, rows)


def _delete(connection: Connection, now: float, act: Any) -> None:
    """A document that was imported after the backup is gone with it."""
    documents.delete(connection, now, act["tenant"], act["document_id"])


def _narrow(connection: Connection, now: float, act: Any) -> None:
    acl = Acl(frozenset(act["allow"]), frozenset(act["deny"]))
    try:
        rights.set_acl(
            connection, now, AclChange(act["tenant"], act["document_id"], acl, _SUBJECT, _TASK_DEADLINE_S)
        )
    except NotFound:
        return


def _revoke(connection: Connection, now: float, act: Any) -> None:
    """Under its old id, by which a lift names it. What isn't there may come back under the same name.

    One with this id is this one, and may have been lifted.
    """
    kind, tenant = RevocationKind(act["kind"]), act["tenant"]
    known = select(revocation_rows.c.seq).where(revocation_rows.c.revocation_id == act["revocation_id"])
    if connection.execute(known).one_or_none() is not None:
        return
    try:
        made = revocations.revoke(
            connection, now, tenant, kind, act["subject"], act["reason"], act["revoked_by"]
        )
    except NotFound:
        _block(connection, now, kind, act)
        return
    connection.execute(
        update(revocation_rows)
        .where(revocation_rows.c.revocation_id == made.revocation_id)
        .values(revocation_id=act["revocation_id"])
    )


def _block(connection: Connection, now: float, kind: RevocationKind, act: Any) -> None:
    row = {name: act[name] for name in ("revocation_id", "tenant", "subject", "reason", "revoked_by")}
    epoch = bump_epoch(connection, act["tenant"])
    row |= {"kind": kind.value, "revocation_epoch": epoch, "created_at": now, "lifted_at": None}
    insert_missing(connection, revocation_rows, [row])


def _lift(connection: Connection, now: float, act: Any) -> None:
    try:
        revocations.lift(connection, now, act["tenant"], act["revocation_id"])
    except NotFound:  # both acts were of a time that nobody remembers
        return


def _revoke_key(connection: Connection, now: float, act: Any) -> None:
    try:
        api_keys.revoke(connection, now, act["tenant"], act["key_id"])
    except NotFound:  # it was made after the backup and is gone with its digest
        return


_ACTS = {
    "deletion": _delete,
    "acl": _narrow,
    "revocation": _revoke,
    "lift": _lift,
    "api_key": _revoke_key,
    "rejection": rejections.again,
}
