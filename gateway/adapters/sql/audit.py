"""The audit trail, append only."""

import json

from sqlalchemy import Connection, insert, select

from gateway.adapters.sql.rows import to_json
from gateway.adapters.sql.tables import audit
from gateway.observe.audit import AuditRecord

_APPEND = insert(audit)


def append(connection: Connection, record: AuditRecord) -> None:
    connection.execute(
        _APPEND,
        {
            "at": record.at,
            "tenant": record.tenant,
            "subject": record.subject,
            "action": record.action,
            "request_id": record.request_id,
            "details": to_json(dict(record.details)),
        },
    )


def entries(connection: Connection, tenant: str, limit: int, action: str | None) -> list[AuditRecord]:
    wanted = select(audit).where(audit.c.tenant == tenant)
    if action is not None:
        wanted = wanted.where(audit.c.action == action)
    rows = connection.execute(wanted.order_by(audit.c.seq.desc()).limit(max(0, limit)))
    return [
        AuditRecord(row.at, row.tenant, row.subject, row.action, row.request_id, json.loads(row.details))
        for row in rows
    ]
