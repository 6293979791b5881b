"""Orders: a stop, a kill or a look at what runs, carried to every process that may run it.

An answer runs in one process; who stops it may have reached another. An order is a row that every process
sees within its poll; each does what its own registry allows, and replies. What the row says of its asker is
compared with the session, as if he had come himself.
"""

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import anyio

from gateway.access.principal import Principal
from gateway.errors import CatalogUnavailable, GatewayError
from gateway.stream.hints import ChangeHints
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import Session

#: askers look this often for replies
_LOOK_S = 0.05
#: orders are handled once; ids are remembered longer than any row lives
_REMEMBERED = 4096
#: taking an order back must not keep its asker for long
_WITHDRAW_S = 1.0


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
        """Those that nobody has taken back, oldest first; at most a few hundred."""
        ...

    async def reply_to_order(self, order_id: str, reply: Reply) -> None:
        """One reply a process: a second one changes nothing. Nothing happens to an order that is gone."""
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
        wait_s: float = 1.0,
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

    # -- what a request asks for ---------------------------------------------------------------------

    async def stop(self, asker: Principal, request_id: str) -> bool:
        """The asker's own stop; False when no process runs such an answer of his. Raises Unavailable."""
        if self._registry.stop(asker, request_id):
            return True
        return await self._found_elsewhere(OrderKind.STOP, asker, request_id)

    async def kill(self, operator: Principal, request_id: str) -> bool:
        """An operator's kill, within his own tenant; as ``stop``."""
        if self._registry.kill(operator, request_id):
            return True
        return await self._found_elsewhere(OrderKind.KILL, operator, request_id)

    async def overview(self, operator: Principal) -> Overview:
        """What runs for the operator's tenant, in every process that replies in time."""
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
        if self._board is None:
            return False
        order = _order(kind, asker, request_id)
        return _any_found(await self._asked(self._board, order, enough=_any_found))

    async def _asked(
        self, board: OrderBoard, order: Order, enough: Callable[[Sequence[Reply]], bool]
    ) -> list[Reply]:
        """The others' replies, until they are enough or time is up; the order is gone afterwards."""
        self._note(order)  # this process has looked already
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
        """One look: one statement when there is nothing to do."""
        for order in await board.open_orders():
            if order.order_id not in self._handled:
                await board.reply_to_order(order.order_id, self._done(order))
                self._note(order)

    def _done(self, order: Order) -> Reply:
        if order.kind is OrderKind.LIST:
            return self._listed(order.tenant)
        obey = self._registry.stop if order.kind is OrderKind.STOP else self._registry.kill
        return Reply(self._process, found=obey(order, order.request_id))

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
