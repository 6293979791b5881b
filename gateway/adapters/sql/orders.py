"""Orders: rows that live for as long as their asker waits, and the replies to them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select

from gateway.adapters.sql.notify import notify
from gateway.adapters.sql.rows import add, insert_missing, to_json
from gateway.adapters.sql.tables import order_replies, orders
from gateway.stream.orders import Order, OrderKind, Reply, RunningSession

#: askers wait about a second; what is older was left by one that was killed
_KEPT_S = 60.0
#: an order this much older than the newest has lost its asker, and must not hide the others
_OPEN_S = 5.0
_MOST = 256

_NEWEST = select(func.max(orders.c.created_at)).scalar_subquery()
_OPEN = select(orders).where(orders.c.created_at > _NEWEST - _OPEN_S).order_by(orders.c.seq).limit(_MOST)


def post(connection: Connection, now: float, order: Order) -> None:
    """Every process that follows rights hears of the commit."""
    notify(connection)
    connection.execute(delete(orders).where(orders.c.created_at < now - _KEPT_S))
    connection.execute(delete(order_replies).where(order_replies.c.created_at < now - _KEPT_S))
    add(
        connection,
        orders,
        order_id=order.order_id,
        kind=order.kind.value,
        tenant=order.tenant,
        subject=order.subject,
        request_id=order.request_id,
        created_at=now,
    )


def open_ones(connection: Connection) -> list[Order]:
    return [_order(row) for row in connection.execute(_OPEN)]


def reply(connection: Connection, now: float, given: Mapping[str, Reply]) -> None:
    """To the orders that are still there; by their ids, at most as many as ``open_ones`` gives."""
    there = connection.scalars(select(orders.c.order_id).where(orders.c.order_id.in_(list(given))))
    rows = [_reply_row(order_id, given[order_id], now) for order_id in there]
    insert_missing(connection, order_replies, rows)


def _reply_row(order_id: str, given: Reply, now: float) -> Mapping[str, Any]:
    return {
        "order_id": order_id,
        "process": given.process,
        "found": given.found,
        "sessions": to_json([asdict(session) for session in given.sessions]),
        "created_at": now,
    }


def replies(connection: Connection, order_id: str) -> list[Reply]:
    """By process."""
    rows = connection.execute(
        select(order_replies).where(order_replies.c.order_id == order_id).order_by(order_replies.c.process)
    )
    return [Reply(row.process, row.found, tuple(map(_session, json.loads(row.sessions)))) for row in rows]


def withdraw(connection: Connection, order_id: str) -> None:
    connection.execute(delete(orders).where(orders.c.order_id == order_id))
    connection.execute(delete(order_replies).where(order_replies.c.order_id == order_id))


def _order(row: Row[Any]) -> Order:
    return Order(row.order_id, OrderKind(row.kind), row.tenant, row.subject, row.request_id)


def _session(fields: Mapping[str, Any]) -> RunningSession:
    return RunningSession(**fields)
