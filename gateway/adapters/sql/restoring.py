"""A catalog that comes from a backup: it has no incarnation, and so no answer, until it is confirmed."""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, select, update

from gateway.access.authorizer import TenantStamp
from gateway.adapters.sql import journal
from gateway.adapters.sql.access import INCARNATION
from gateway.adapters.sql.rows import fresh_id, insert_missing
from gateway.adapters.sql.tables import meta, tasks
from gateway.adapters.sql.turns import RESTORED_AT
from gateway.errors import ConfigurationError, RestoreUnconfirmed
from gateway.ingest.task import TaskState

_FINISHED = "restore_finished"
_META = select(meta.c.key, meta.c.value)


def check_confirmed(connection: Connection) -> None:
    """Raises RestoreUnconfirmed."""
    if not is_confirmed(connection):
        raise RestoreUnconfirmed()


def confirmed(stamp: TenantStamp) -> TenantStamp:
    """The stamp, when the catalog answers. Raises RestoreUnconfirmed."""
    if not stamp.incarnation:
        raise RestoreUnconfirmed()
    return stamp


def is_confirmed(connection: Connection) -> bool:
    """Whether the catalog answers."""
    return bool(_values(connection).get(INCARNATION))


def note(connection: Connection) -> Mapping[str, str]:
    """What was kept with the load; empty in a catalog that answers."""
    values = _values(connection)
    return {} if values.pop(INCARNATION, "") else values


def give_back_tasks(connection: Connection) -> None:
    """What ran when the backup was made runs no more; whoever may still hold it finds a higher fence. The
    start that it was in is no attempt, since nobody vanished; the time since the backup is no working time.
    """
    connection.execute(
        update(tasks)
        .where(tasks.c.state == TaskState.RUNNING.value)
        .values(
            state=TaskState.PENDING.value,
            fence=tasks.c.fence + 1,
            attempts=tasks.c.attempts - 1,
            worker=None,
            lease_until=None,
        )
    )


def finish(connection: Connection, now: float) -> None:
    """Everything is back; only the operator's word is missing."""
    if not is_confirmed(connection):
        insert_missing(connection, meta, [{"key": _FINISHED, "value": str(now)}])


def confirm(connection: Connection, now: float) -> bool:
    """A new incarnation, so that nothing any process remembers of an earlier one counts. Tasks may wait from
    now on as long as new ones.

    False when the catalog has one. Raises ConfigurationError ``restore_unfinished``.
    """
    values = _values(connection)
    if values.get(INCARNATION):
        return False
    if _FINISHED not in values:
        raise ConfigurationError("restore_unfinished", "run the same qa-gateway restore again: it goes on")
    journal.forget_sent(connection)
    connection.execute(delete(meta).where(meta.c.key != INCARNATION))
    connection.execute(update(meta).where(meta.c.key == INCARNATION).values(value=fresh_id("inc")))
    insert_missing(connection, meta, [{"key": RESTORED_AT, "value": str(now)}])
    return True


def _values(connection: Connection) -> dict[str, str]:
    return {row.key: row.value for row in connection.execute(_META)}
