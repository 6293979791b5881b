"""The revocation feed: ends running streams whose rights are gone, and says when nobody can tell."""

from collections.abc import Callable, Collection, Mapping

import anyio
import anyio.abc

from gateway.access.authorizer import TenantStamp, still_current
from gateway.access.scope import AccessScope
from gateway.errors import DeadlineExceeded, GatewayError, RevocationFeedStale
from gateway.stream.hints import ChangeHints
from gateway.stream.registry import SessionRegistry
from gateway.stream.rights import Claim, Loss, Rights
from gateway.stream.session import CloseReason, Session

#: sessions checked at once, of each urgency: they share the database's connections with the questions
_PLACES = 2
#: between the beginnings of two steps, however many hints come
_PAUSE_S = 0.01


class RevocationFeed:
    """One a process, over all of its sessions.

    A step reads the stamps of the tenants that have sessions, in one statement, and is good once they are
    read. A session whose rights were last found to hold under another stamp is checked beside the steps, so
    that one that can't be checked holds up no other. When the last good step is ``bound_s`` old, rights
    can't be followed: protected access is refused and everything that runs ends. A single session ends
    likewise when its own check hasn't succeeded for so long.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        rights: Rights,
        *,
        poll_s: float,
        bound_s: float,
        hints: Collection[ChangeHints] = (),
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``on_failure`` gets the code of what kept a step, or the check of a session, from succeeding."""
        self._registry = registry
        self._rights = rights
        self._poll_s = poll_s
        self._bound_s = bound_s
        self._hints = tuple(hints)
        self._on_failure = on_failure
        self._good_until = float("-inf")
        self._stamps: Mapping[str, TenantStamp] = {}
        self._in_check: set[Session] = set()
        self._places = anyio.CapacityLimiter(_PLACES)
        self._urgent_places = anyio.CapacityLimiter(_PLACES)
        self._woken = anyio.Event()
        self._untold = anyio.Event()

    def check_fresh(self) -> None:
        """Raises RevocationFeedStale unless the last good step is young enough."""
        if anyio.current_time() >= self._good_until:
            raise RevocationFeedStale()

    async def ready(self) -> None:
        """``check_fresh``, as readiness asks it."""
        self.check_fresh()

    def wake(self) -> None:
        """Makes the next step now."""
        self._woken.set()

    def announce(self) -> None:
        """Rights were narrowed right here: looks now, and lets the other processes know."""
        self._untold.set()
        self.wake()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Steps until cancelled; started once the first step was good."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_stale)
            tasks.start_soon(self._tell)
            for hints in self._hints:
                tasks.start_soon(hints.follow, self.wake)
            while True:
                earliest = anyio.current_time() + _PAUSE_S
                if await self._stepped(tasks):
                    task_status.started()
                    task_status = anyio.TASK_STATUS_IGNORED
                with anyio.move_on_after(self._poll_s):
                    await self._woken.wait()
                await anyio.sleep_until(earliest)

    async def step(self) -> None:
        """One look, and every check that it asks for. Raises Unavailable when the stamps can't be read."""
        async with anyio.create_task_group() as tasks:
            await self._look(tasks)

    # looking

    async def _stepped(self, tasks: anyio.abc.TaskGroup) -> bool:
        with anyio.move_on_after(self._bound_s):
            try:
                await self._look(tasks)
            except GatewayError as error:
                self._on_failure(error.code)
                return False
            return True
        self._on_failure(DeadlineExceeded.code)
        return False

    async def _look(self, tasks: anyio.abc.TaskGroup) -> None:
        self._woken = anyio.Event()  # what is said from here on asks for another look
        began = anyio.current_time()
        self._end_expired()
        tenants = {s.principal.tenant for s in self._registry.identified() if s.principal}
        self._stamps = await self._rights.stamps(tenants)
        self._good_until = began + self._bound_s
        for session in self._registry.identified():
            if session not in self._in_check and self._doubted(session) is not None:
                tasks.start_soon(self._check, session, began)

    def _end_expired(self) -> None:
        for session in self._registry.identified():
            loss = None if session.principal is None else self._rights.expired(session.principal)
            if loss is not None:
                _end(session, loss)

    def _doubted(self, session: Session) -> Claim | None:
        """Its claim, when that was last found to hold under another stamp than the newest one read.

        Without a scope there is none yet: it will be bound to what holds then.
        """
        principal, scope = session.principal, session.scope
        if principal is None or scope is None or session.close_reason is not None:
            return None
        stamp = self._stamps.get(scope.tenant)
        if stamp is None or still_current(scope, stamp):
            return None
        return Claim(principal, scope, session.documents)

    # checking

    async def _check(self, session: Session, began: float) -> None:
        """Until its rights hold as of the newest stamp, or are gone; without an answer in time it ends."""
        self._in_check.add(session)
        try:
            with anyio.CancelScope(deadline=began + self._bound_s) as in_time:
                await self._check_until_known(session, in_time)
            if in_time.cancelled_caught:
                self._on_failure(DeadlineExceeded.code)
                session.cancel(CloseReason.FEED_STALE)
        finally:
            self._in_check.discard(session)

    async def _check_until_known(self, session: Session, in_time: anyio.CancelScope) -> None:
        while (claim := self._doubted(session)) is not None:
            try:
                asked_at, found = await self._checked(claim)
            except GatewayError as error:
                self._on_failure(error.code)
                await anyio.sleep(self._poll_s)
                continue
            in_time.deadline = asked_at + self._bound_s
            if isinstance(found, Loss):
                _end(session, found)
            elif found is claim.scope:
                return  # it was bound to a newer stamp than the one that was read
            elif session.scope is claim.scope:
                # what was found meanwhile is for the question's own check, which comes before its first byte
                session.scope = found

    async def _checked(self, claim: Claim) -> tuple[float, AccessScope | Loss]:
        """When the check was made, and what came of it. Most of a tenant's sessions will be found unharmed;
        those that a revocation names don't queue behind them.
        """
        named = claim.named_in(await self._rights.revoked(claim.scope.tenant))
        async with self._urgent_places if named else self._places:
            asked_at = anyio.current_time()
            return asked_at, await self._rights.check(claim)

    # when nobody can tell

    async def _end_stale(self) -> None:
        while True:
            left = self._good_until - anyio.current_time()
            await anyio.sleep(left if left > 0 else self._poll_s)
            if anyio.current_time() >= self._good_until:
                for session in self._registry.identified():
                    session.cancel(CloseReason.FEED_STALE)

    # other processes

    async def _tell(self) -> None:
        while True:
            await self._untold.wait()
            self._untold = anyio.Event()
            for hints in self._hints:
                await hints.tell()


def _end(session: Session, loss: Loss) -> None:
    session.revoke(loss.event, loss.error, loss.accepted_at)
