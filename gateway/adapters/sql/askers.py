"""Askers: whether who sent a task has lost his access since."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, literal, or_, select

from gateway.access.apikey import SUBJECT_PREFIX
from gateway.adapters.sql.tables import api_keys, revocations, tasks
from gateway.errors import PrincipalRevoked
from gateway.ingest.task import ASKER_REVOKED
from gateway.stream.revocation import RevocationKind


def _revoked(tenant: ColumnElement[str], user: ColumnElement[str]) -> ColumnElement[bool]:
    return exists().where(
        revocations.c.tenant == tenant,
        revocations.c.kind == RevocationKind.USER.value,
        revocations.c.subject == user,
        revocations.c.lifted_at.is_(None),
    )


#: of the keys that may have sent the task: all of one name, and so of one maker
_his_key: tuple[Any, ...] = (
    api_keys.c.tenant == tasks.c.tenant,
    literal(SUBJECT_PREFIX) + api_keys.c.name == tasks.c.subject,
)
#: a condition on ``tasks``: a revoked person, or a key that is revoked or whose maker is
is_gone: ColumnElement[bool] = and_(
    tasks.c.subject != "",
    or_(
        _revoked(tasks.c.tenant, tasks.c.subject),
        exists().where(*_his_key, _revoked(api_keys.c.tenant, api_keys.c.created_by)),
        and_(exists().where(*_his_key), ~exists().where(*_his_key, api_keys.c.revoked_at.is_(None))),
    ),
)


def refuse_revoked(connection: Connection, task_id: str) -> None:
    """Raises PrincipalRevoked when nothing of the task may be published any more."""
    gone = select(tasks.c.task_id).where(tasks.c.task_id == task_id, is_gone)
    if connection.execute(gone).one_or_none() is not None:
        raise PrincipalRevoked(ASKER_REVOKED.detail or "")
