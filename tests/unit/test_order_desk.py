"""The order desk: who is asked, who replies, and how many may wait at once."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel
import pytest

from gateway.access.principal import Principal
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.app import create_app
from gateway.errors import CatalogUnavailable, Overloaded
from gateway.stream.channel import EventChannel
from gateway.stream.orders import Order, OrderDesk, OrderKind, Reply
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import CloseReason, Session
from tests.harness.serving import serving
from tests.harness.wire import request
from tests.harness.world import World

PATIENCE_S = 20
UNKNOWN = "req_" + "0" * 32


def asker(tenant: str = "acme", subject: str = "ann") -> Principal:
    return Principal(tenant, subject, frozenset(), frozenset(), time.time() + 60)


class Board(MemoryCatalog):
    """Keeps what was posted and what was replied, and lets askers wait until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[Order] = []
        self.replied: list[Mapping[str, Reply]] = []
        self.failures = 0
        self.answers = anyio.Event()

    async def post_order(self, order: Order) -> None:
        self.posted.append(order)
        await super().post_order(order)

    async def reply_to_orders(self, replies: Mapping[str, Reply]) -> None:
        if self.failures:
            self.failures -= 1
            raise CatalogUnavailable()
        self.replied.append(dict(replies))
        await super().reply_to_orders(replies)

    async def order_replies(self, order_id: str) -> list[Reply]:
        await self.answers.wait()
        return await super().order_replies(order_id)


def stop_of(session: Session, order_id: str) -> Order:
    return Order(order_id, OrderKind.STOP, "acme", "ann", session.request_id)


@contextmanager
def running(registry: SessionRegistry, number: int) -> Iterator[Session]:
    """An answer of ann's."""
    session = Session(f"req_{number:032x}", EventChannel(65_536, 20, 512))
    session.principal = asker()
    with registry.registered(session):
        yield session


@pytest.mark.parametrize(
    "text", ["none", "", "req_", "req_" + "g" * 32, "req_" + "A" * 32, UNKNOWN + "0", UNKNOWN + "\n", "\0"]
)
async def test_what_no_answer_is_called_is_asked_of_nobody(text: str) -> None:
    """No process can have it."""
    board = Board()
    board.answers.set()
    desk = OrderDesk(SessionRegistry(), "one", board, wait_s=0)
    assert not await desk.stop(asker(), text)
    assert not await desk.kill(asker(), text)
    assert board.posted == []


async def test_only_who_has_it_replies_and_to_a_list_everybody() -> None:
    """All that a look has found goes in one transaction."""
    board, registry = Board(), SessionRegistry()
    desk = OrderDesk(registry, "one", board)
    with running(registry, 1) as session:
        await board.post_order(Order("stop", OrderKind.STOP, "acme", "ann", UNKNOWN))
        await board.post_order(Order("kill", OrderKind.KILL, "globex", "op", session.request_id))
        await desk.step(board)
        assert board.replied == []
        await board.post_order(Order("list", OrderKind.LIST, "globex", "op"))
        await board.post_order(stop_of(session, "mine"))
        await desk.step(board)
        await desk.step(board)
    assert board.replied == [{"list": Reply("one", False), "mine": Reply("one", True)}]


async def test_a_reply_that_fails_ends_nothing_and_is_sent_again() -> None:
    """Every order of the look is obeyed first; who has gone meanwhile gets no reply."""
    board, registry = Board(), SessionRegistry()
    desk = OrderDesk(registry, "one", board)
    with running(registry, 1) as first, running(registry, 2) as second:
        await board.post_order(stop_of(first, "o1"))
        await board.post_order(stop_of(second, "o2"))
        board.failures = 1
        with pytest.raises(CatalogUnavailable):
            await desk.step(board)
        assert {first.close_reason, second.close_reason} == {CloseReason.CLIENT_STOP}
    await board.withdraw_order("o1")
    await desk.step(board)
    assert board.replied == [{"o2": Reply("one", True)}]


@asynccontextmanager
async def waiting(desk: OrderDesk, board: Board, *tenants: str) -> AsyncIterator[None]:
    """So many stops that wait for the others; in the end nobody has had any of them."""
    count = len(board.posted) + len(tenants)
    stops = [asyncio.create_task(desk.stop(asker(tenant), UNKNOWN)) for tenant in tenants]
    with anyio.fail_after(PATIENCE_S):
        while len(board.posted) < count:
            await anyio.lowlevel.checkpoint()
        try:
            yield
        finally:
            board.answers.set()
        assert not any(await asyncio.gather(*stops))


async def test_a_tenant_that_asks_for_ever_leaves_places_to_others() -> None:
    """And to its operators; whoever finds none is told so, and when to come again."""
    board = Board()
    desk = OrderDesk(SessionRegistry(), "one", board, wait_s=0)
    async with waiting(desk, board, *["acme"] * 8):
        with pytest.raises(Overloaded):
            await desk.stop(asker(), UNKNOWN)
        async with waiting(desk, board, "globex"):
            kill = asyncio.create_task(desk.kill(asker(), UNKNOWN))
            while board.posted[-1].kind is not OrderKind.KILL:
                await anyio.lowlevel.checkpoint()
        assert not await kill
    assert not await desk.stop(asker(), UNKNOWN)


async def test_a_process_asks_the_others_for_so_much_at_once() -> None:
    """However many tenants ask; then there are places again, also of those who left."""
    board = Board()
    desk = OrderDesk(SessionRegistry(), "one", board, wait_s=0)
    async with waiting(desk, board, *[f"tenant-{number}" for number in range(16)]):
        with pytest.raises(Overloaded):
            await desk.stop(asker(), UNKNOWN)
        assert len(board.posted) == 16
    leaver = asyncio.create_task(desk.stop(asker(), UNKNOWN))
    await anyio.lowlevel.checkpoint()
    leaver.cancel()
    await asyncio.wait({leaver})
    async with waiting(desk, board, *["acme"] * 8):
        pass
    assert await board.open_orders() == []


async def test_nobody_is_told_not_found_when_nobody_was_asked() -> None:
    """503 with the time to come again."""
    board, world = Board(), World()
    desk = OrderDesk(world.registry, "one", board, wait_s=1)
    services = dataclasses.replace(world.services, orders=desk)
    async with serving(create_app(world.settings, services)) as port:
        async with waiting(desk, board, *["acme"] * 8):
            head, body = await request(port, "DELETE", f"/v1/answers/{UNKNOWN}", token=world.token())
            assert (head.status, head.headers["retry-after"]) == (503, "1")
            assert b'"code":"overloaded"' in body
