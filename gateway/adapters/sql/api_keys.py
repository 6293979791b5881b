"""API keys: their rows, without any secret."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from gateway.access.apikey import ApiKey
from gateway.adapters.sql.leaving import leave
from gateway.adapters.sql.rows import add as add_row
from gateway.adapters.sql.rows import bump_epoch, padded, to_json
from gateway.adapters.sql.tables import api_keys
from gateway.errors import ApiKeyNameTaken, NotFound

_BY_ID = select(api_keys).where(api_keys.c.key_id.in_(bindparam("key_ids", expanding=True)))


def add(connection: Connection, key: ApiKey) -> None:
    others = select(api_keys.c.key_id).where(
        api_keys.c.tenant == key.tenant,
        api_keys.c.name == key.name,
        api_keys.c.created_by != key.created_by,
    )
    if connection.execute(others.limit(1)).first() is not None:
        raise ApiKeyNameTaken()
    add_row(
        connection,
        api_keys,
        key_id=key.key_id,
        tenant=key.tenant,
        name=key.name,
        groups=to_json(sorted(key.groups)),
        scopes=to_json(sorted(key.scopes)),
        digest=key.digest,
        created_by=key.created_by,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def found(connection: Connection, key_ids: Sequence[str]) -> Mapping[str, ApiKey | None]:
    """The key of each id; None where there is none."""
    rows = connection.execute(_BY_ID, {"key_ids": padded(key_ids)})
    return dict.fromkeys(key_ids) | {row.key_id: _key(row) for row in rows}


def listed(connection: Connection, tenant: str) -> list[ApiKey]:
    """Newest first, revoked and expired ones too."""
    rows = connection.execute(
        select(api_keys).where(api_keys.c.tenant == tenant).order_by(api_keys.c.seq.desc())
    )
    return [_key(row) for row in rows]


def revoke(connection: Connection, now: float, tenant: str, key_id: str) -> ApiKey:
    mine = (api_keys.c.key_id == key_id, api_keys.c.tenant == tenant)
    row = connection.execute(select(api_keys).where(*mine).with_for_update()).one_or_none()
    if row is None:
        raise NotFound()
    if row.revoked_at is not None:
        return _key(row)
    bump_epoch(connection, tenant)
    leave(connection, now, "api_key", {"tenant": tenant, "key_id": key_id, "at": now})
    revoked = connection.execute(update(api_keys).where(*mine).values(revoked_at=now).returning(api_keys))
    return _key(revoked.one())


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        key_id=row.key_id,
        tenant=row.tenant,
        name=row.name,
        groups=frozenset(json.loads(row.groups)),
        scopes=frozenset(json.loads(row.scopes)),
        digest=row.digest,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
