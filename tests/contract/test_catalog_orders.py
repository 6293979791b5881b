"""Contract of OrderBoard: orders are seen by all while they are open, and answered once by each."""

import pytest

from gateway.stream.orders import Order, OrderBoard, OrderKind, Reply, RunningSession
from tests.contract.catalog_world import HOSTILE_NAMES, Clock

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def board(catalog: OrderBoard) -> OrderBoard:
    """The catalog under test, as orders see it."""
    return catalog


def order(order_id: str = "o1", kind: OrderKind = OrderKind.STOP, **fields: str) -> Order:
    return Order(order_id, kind, **{"tenant": "acme", "subject": "ann", "request_id": "r1", **fields})


SESSION = RunningSession("r1", "ann", 1_800_000_000.25, streaming=True, documents=3, process="p1")


async def test_open_orders_come_back_whole_and_in_turn(board: OrderBoard) -> None:
    """Every kind, with and without a request id; looking changes nothing."""
    posted = [order("o2", OrderKind.KILL), order("o1"), order("o3", OrderKind.LIST, request_id="")]
    assert await board.open_orders() == []
    for one in posted:
        await board.post_order(one)
    assert await board.open_orders() == posted
    assert await board.open_orders() == posted


async def test_replies_of_several_processes_are_kept_apart(board: OrderBoard) -> None:
    """By process; those of another order aren't among them."""
    for order_id in ("o1", "o2"):
        await board.post_order(order(order_id))
    replies = [Reply("p1", True, (SESSION, SESSION)), Reply("p2", False)]
    for reply in reversed(replies):
        await board.reply_to_orders({"o1": reply})
    assert await board.order_replies("o1") == replies
    assert await board.order_replies("o2") == []


async def test_a_process_replies_once(board: OrderBoard) -> None:
    """The first word counts."""
    await board.post_order(order())
    await board.reply_to_orders({"o1": Reply("p1", True)})
    await board.reply_to_orders({"o1": Reply("p1", False)})
    assert await board.order_replies("o1") == [Reply("p1", True)]


async def test_what_is_withdrawn_is_gone_with_its_replies(board: OrderBoard) -> None:
    """A late reply leaves nothing, whatever comes with it, and withdrawing twice is no error."""
    for order_id in ("o1", "o2"):
        await board.post_order(order(order_id))
        await board.reply_to_orders({order_id: Reply("p1", True)})
    await board.withdraw_order("o1")
    await board.withdraw_order("o1")
    await board.reply_to_orders({"o1": Reply("p2", True), "o2": Reply("p2", False)})
    assert await board.open_orders() == [order("o2")]
    assert await board.order_replies("o1") == []
    assert await board.order_replies("o2") == [Reply("p1", True), Reply("p2", False)]


async def test_orders_nobody_took_back_go_with_the_next_one(board: OrderBoard, clock: Clock) -> None:
    """After a minute; younger ones stay."""
    await board.post_order(order("old"))
    await board.reply_to_orders({"old": Reply("p1", True)})
    clock.advance(30)
    await board.post_order(order("young"))
    await board.reply_to_orders({"young": Reply("p1", True)})
    clock.advance(31)
    await board.post_order(order("new"))
    assert await board.order_replies("old") == []
    assert await board.order_replies("young") == [Reply("p1", True)]


async def test_old_orders_never_hide_new_ones(board: OrderBoard, clock: Clock) -> None:
    """However many there are: what is seconds older than the newest has lost its asker."""
    for number in range(300):
        await board.post_order(order(f"o{number}"))
    clock.advance(4)
    await board.post_order(order("young"))
    clock.advance(3)
    await board.post_order(order("new"))
    assert await board.open_orders() == [order("young"), order("new")]


async def test_a_flood_is_read_in_parts(board: OrderBoard) -> None:
    """The oldest first."""
    for number in range(300):
        await board.post_order(order(f"o{number}"))
    seen = await board.open_orders()
    assert 200 <= len(seen) < 300
    assert [one.order_id for one in seen] == [f"o{number}" for number in range(len(seen))]


async def test_hostile_names_are_kept_literally(board: OrderBoard) -> None:
    """In every field, and as an id."""
    hostile = [
        order(name, tenant=name, subject=name, request_id=name) for name in HOSTILE_NAMES if name.strip()
    ]
    for one in hostile:
        await board.post_order(one)
    await board.reply_to_orders({one.order_id: Reply(one.order_id, True, (SESSION,)) for one in hostile})
    assert await board.open_orders() == hostile
    for one in hostile:
        assert await board.order_replies(one.order_id) == [Reply(one.order_id, True, (SESSION,))]
