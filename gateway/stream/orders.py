"""Orders: a stop, a kill or a look at what runs, carried to every process that may run it.

An answer runs in one process; who stops it may have reached another. An order is a row that every process
sees at a hint or within its poll; each does what its own registry allows, and whoever had the session says
so. What the row says of its asker is compared with the session, as if he had come himself.

An order costs every process something, so few may wait at once: who finds no place hears ``overloaded``,
never "not found", for nobody was asked. Stops and what operators ask for don't take each other's places.
"""

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import anyio

from gateway.access.principal import Principal
from gateway.errors import CatalogUnavailable, GatewayError
from gateway.stream.hints import ChangeHints
from gateway.stream.places import Places
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import Session

#: how long an asker waits for the others
ORDER_WAIT_S = 1.0
#: askers look this often for replies
_LOOK_S = 0.1
#: askers that wait at once in a process, and those of one tenant among them
_STOPS, _STOPS_OF_TENANT = 16, 8
_OPERATIONS, _OPERATIONS_OF_TENANT = 8, 4
#: orders are handled once; ids are remembered longer than any row lives
_REMEMBERED = 4096
#: taking an order back must not keep its asker for long
_WITHDRAW_S = 1.0
#: what answers are called; nobody needs to be asked for anything else
_REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")


class OrderKind(StrEnum):
    STOP = "stop"
    KILL = "kill"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Order:
    """``tenant`` and ``subject`` are the asker's; ``request_id`` is empty for a list."""

    order_id: str
    kind: OrderKind
    tenant: str
    subject: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class RunningSession:
    """One running answer as an operator sees it; ``started_at`` in seconds since the epoch."""

    request_id: str
    subject: str
    started_at: float
    streaming: bool
    documents: int
    process: str

    @classmethod
    def of(cls, session: Session, process: str) -> "RunningSession":
        return cls(
            request_id=session.request_id,
            subject=session.principal.subject if session.principal else "",
            started_at=session.started_at,
            streaming=session.opened,
            documents=len(session.documents),
            process=process,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What one process answers: whether it had the session, or all it runs for the tenant."""

    process: str
    found: bool
    sessions: tuple[RunningSession, ...] = ()


class OrderBoard(Protocol):
    """Where all processes meet. Raises CatalogUnavailable when it can't answer."""

    async def post_order(self, order: Order) -> None:
        """For every process to see, this one too. Orders older than a minute are gone afterwards."""
        ...

    async def open_orders(self) -> list[Order]:
        """Those that nobody has taken back, oldest first; at most a few hundred.

        None that is some seconds older than the newest: its asker waits no more, and mustn't hide others.
        """
        ...

    async def reply_to_orders(self, replies: Mapping[str, Reply]) -> None:
        """By order id, in one transaction; those to orders that are gone change nothing.

        One reply a process and order counts, the first.
        """
        ...

    async def order_replies(self, order_id: str) -> list[Reply]: ...

    async def withdraw_order(self, order_id: str) -> None:
        """Takes it and its replies away."""
        ...


@dataclass(frozen=True, slots=True)
class Overview:
    """What runs for a tenant, oldest first, and the processes that have said so."""

    sessions: tuple[RunningSession, ...]
    processes: tuple[str, ...]


class OrderDesk:
    """One a process: asks the others for what isn't here, and does what they ask.

    Without a board this process is the only one. ``wait_s`` bounds how long an asker waits for the others.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        process: str,
        board: OrderBoard | None = None,
        *,
        hints: Collection[ChangeHints] = (),
        poll_s: float = 0.25,
        wait_s: float = ORDER_WAIT_S,
        on_failed_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``hints`` make the others look sooner; ``on_failed_step`` gets the code of what went wrong."""
        self._registry = registry
        self._process = process
        self._board = board
        self._hints = tuple(hints)
        self._poll_s = poll_s
        self._wait_s = wait_s
        self._on_failed_step = on_failed_step
        self._woken = anyio.Event()
        self._handled: dict[str, None] = {}  # oldest first
        self._unsent: dict[str, Reply] = {}  # by order
        again_ms = round(wait_s * 1000)
        self._stops = Places("stop", most=_STOPS, most_of_tenant=_STOPS_OF_TENANT, retry_after_ms=again_ms)
        self._operations = Places(
            "operation", most=_OPERATIONS, most_of_tenant=_OPERATIONS_OF_TENANT, retry_after_ms=again_ms
        )

    # -- what a request asks for ---------------------------------------------------------------------

    async def stop(self, asker: Principal, request_id: str) -> bool:
        """The asker's own stop; False when no process runs such an answer of his.

        Raises Overloaded when too many wait already, CatalogUnavailable; then nobody knows.
        """
        if self._registry.stop(asker, request_id):
            return True
        return await self._found_elsewhere(OrderKind.STOP, asker, request_id)

    async def kill(self, operator: Principal, request_id: str) -> bool:
        """An operator's kill, within his own tenant; as ``stop``."""
        if self._registry.kill(operator, request_id):
            return True
        return await self._found_elsewhere(OrderKind.KILL, operator, request_id)

    async def overview(self, operator: Principal) -> Overview:
        """What runs for the operator's tenant, in every process that replies in time; raises as ``stop``."""
        replies = [self._listed(operator.tenant)]
        if self._board is not None:
            order = _order(OrderKind.LIST, operator)
            replies += await self._asked(self._board, order, enough=lambda _: False)
        by_process = {reply.process: reply for reply in replies}
        sessions = [session for reply in by_process.values() for session in reply.sessions]
        return Overview(
            tuple(sorted(sessions, key=lambda session: session.started_at)), tuple(sorted(by_process))
        )

    async def _found_elsewhere(self, kind: OrderKind, asker: Principal, request_id: str) -> bool:
        if self._board is None or not _REQUEST_ID.fullmatch(request_id):
            return False
        order = _order(kind, asker, request_id)
        return _any_found(await self._asked(self._board, order, enough=_any_found))

    async def _asked(
        self, board: OrderBoard, order: Order, enough: Callable[[Sequence[Reply]], bool]
    ) -> list[Reply]:
        """The others' replies, until they are enough or time is up; the order is gone afterwards."""
        places = self._stops if order.kind is OrderKind.STOP else self._operations
        with places.taken(order.tenant):
            self._note(order)  # this process has looked already
            return await self._replies(board, order, enough)

    async def _replies(
        self, board: OrderBoard, order: Order, enough: Callable[[Sequence[Reply]], bool]
    ) -> list[Reply]:
        until = time.monotonic() + self._wait_s
        try:
            await board.post_order(order)
            for hints in self._hints:
                await hints.tell()
            while True:
                replies = await board.order_replies(order.order_id)
                if enough(replies) or time.monotonic() >= until:
                    return replies
                await anyio.sleep(_LOOK_S)
        finally:
            # what stays on the board goes with the next order
            with contextlib.suppress(CatalogUnavailable), anyio.move_on_after(_WITHDRAW_S, shield=True):
                await board.withdraw_order(order.order_id)

    # -- what the others ask for ---------------------------------------------------------------------

    def wake(self) -> None:
        """Makes the next look now."""
        self._woken.set()

    async def run(self) -> None:
        """Looks for orders until cancelled; at once over when there is nobody to give any."""
        while self._board is not None:
            self._woken = anyio.Event()
            try:
                await self.step(self._board)
            except GatewayError as error:
                self._on_failed_step(error.code)
            with anyio.move_on_after(self._poll_s):
                await self._woken.wait()

    async def step(self, board: OrderBoard) -> None:
        """One look: one statement, and one transaction when there is something to say.

        A reply that didn't get through is sent again for as long as its order is open.
        """
        orders = await board.open_orders()
        for order in orders:
            if order.order_id not in self._handled:
                self._note(order)
                self._obey(order)
        still_open = {order.order_id for order in orders}
        self._unsent = {name: reply for name, reply in self._unsent.items() if name in still_open}
        if self._unsent:
            await board.reply_to_orders(self._unsent)
            self._unsent = {}

    def _obey(self, order: Order) -> None:
        """Only who had the session has something to say; of what runs, everybody."""
        if order.kind is OrderKind.LIST:
            self._unsent[order.order_id] = self._listed(order.tenant)
            return
        end = self._registry.stop if order.kind is OrderKind.STOP else self._registry.kill
        if end(order, order.request_id):
            self._unsent[order.order_id] = Reply(self._process, found=True)

    def _listed(self, tenant: str) -> Reply:
        running = self._registry.of_tenant(tenant)
        return Reply(
            self._process, bool(running), tuple(RunningSession.of(s, self._process) for s in running)
        )

    def _note(self, order: Order) -> None:
        self._handled[order.order_id] = None
        while len(self._handled) > _REMEMBERED:
            del self._handled[next(iter(self._handled))]


class SharedHints:
    """The feed's hints, which wake somebody else too: both look into one database."""

    def __init__(self, hints: ChangeHints, wake: Callable[[], None]) -> None:
        self._hints = hints
        self._wake = wake

    async def follow(self, hinted: Callable[[], None]) -> None:
        def both() -> None:
            self._wake()
            hinted()

        await self._hints.follow(both)

    async def tell(self) -> None:
        await self._hints.tell()


def _order(kind: OrderKind, asker: Principal, request_id: str = "") -> Order:
    return Order(f"ord_{uuid.uuid4().hex}", kind, asker.tenant, asker.subject, request_id)


def _any_found(replies: Sequence[Reply]) -> bool:
    return any(reply.found for reply in replies)
