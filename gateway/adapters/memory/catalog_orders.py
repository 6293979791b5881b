"""Orders of the in-memory catalog."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.adapters.memory.catalog_rows import CatalogRows
from gateway.stream.orders import Order, Reply

_KEPT_S = 60.0
_OPEN_S = 5.0
_MOST = 256


@dataclass(slots=True)
class _Posted:
    order: Order
    at: float
    replies: dict[str, Reply] = field(default_factory=dict)


class OrderRows(CatalogRows):
    """OrderBoard over the dicts of the catalog."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._orders: dict[str, _Posted] = {}  # oldest first

    async def post_order(self, order: Order) -> None:
        now = self._clock()
        young = {name: one for name, one in self._orders.items() if one.at >= now - _KEPT_S}
        self._orders = {**young, order.order_id: _Posted(order, now)}

    async def open_orders(self) -> list[Order]:
        newest = max((posted.at for posted in self._orders.values()), default=0.0)
        return [one.order for one in self._orders.values() if one.at > newest - _OPEN_S][:_MOST]

    async def reply_to_orders(self, replies: Mapping[str, Reply]) -> None:
        for order_id, reply in replies.items():
            posted = self._orders.get(order_id)
            if posted is not None:
                posted.replies.setdefault(reply.process, reply)

    async def order_replies(self, order_id: str) -> list[Reply]:
        posted = self._orders.get(order_id)
        return [] if posted is None else [reply for _, reply in sorted(posted.replies.items())]

    async def withdraw_order(self, order_id: str) -> None:
        self._orders.pop(order_id, None)
