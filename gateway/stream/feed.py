"""The revocation feed: ends running streams whose rights are gone, and says when nobody can tell."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

import anyio
import anyio.abc

from gateway.access.authorizer import TenantStamp, still_current
from gateway.access.scope import AccessScope
from gateway.errors import DeadlineExceeded, GatewayError, RevocationFeedStale
from gateway.stream.hints import ChangeHints
from gateway.stream.registry import SessionRegistry
from gateway.stream.review import Finding, Review
from gateway.stream.rights import Claim, Loss, Rights
from gateway.stream.session import CloseReason, Session

#: questions asked at once for reviews of each urgency: they share the database's connections with everybody
_PLACES = 4
#: between the beginnings of two steps, however many hints come
_PAUSE_S = 0.01


class RevocationFeed:
    """One a process, over all of its sessions.

    A step reads the stamps of the tenants that have sessions, in one statement, and is good once they are
    read. The sessions of a tenant whose rights were last found to hold under another stamp are reviewed
    together, beside the steps, so that those that can't be checked hold up no others.

    No session runs for longer than ``bound_s`` on the word of one moment: neither of the last good step, nor
    of the last one that its rights were known to hold at. When the last good step is that old, protected
    access is refused.
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
        self._good_at = float("-inf")
        self._stamps: Mapping[str, TenantStamp] = {}
        #: when each was last known to have its rights
        self._sound_at: dict[Session, float] = {}
        self._in_check: set[Session] = set()
        self._places = anyio.CapacityLimiter(_PLACES)
        self._urgent_places = anyio.CapacityLimiter(_PLACES)
        self._woken = anyio.Event()
        self._untold = anyio.Event()

    def check_fresh(self) -> None:
        """Raises RevocationFeedStale unless the last good step is young enough."""
        if anyio.current_time() >= self._good_at + self._bound_s:
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
        doubts = self._doubts()
        before = self._good_at if self._good_at > float("-inf") else began
        self._sound_at = {
            session: self._sound_at.get(session, before) if session in doubts else began
            for session in self._registry.identified()
        }
        self._good_at = began
        by_tenant: dict[str, dict[Session, Claim]] = defaultdict(dict)
        for session, claim in doubts.items():
            if session not in self._in_check:
                by_tenant[claim.scope.tenant][session] = claim
        for tenant, new in by_tenant.items():
            tasks.start_soon(self._check, tenant, new)

    def _end_expired(self) -> None:
        for session in self._registry.identified():
            loss = None if session.principal is None else self._rights.expired(session.principal)
            if loss is not None:
                _end(session, loss)

    def _doubts(self) -> dict[Session, Claim]:
        claims = ((session, self._doubted(session)) for session in self._registry.identified())
        return {session: claim for session, claim in claims if claim is not None}

    def _doubted(self, session: Session) -> Claim | None:
        """Its claim, when that was last found to hold under another stamp than the newest one read.

        Without a scope there is none yet: it will be bound to what holds then.
        """
        principal, scope = session.principal, session.scope
        if principal is None or scope is None or not session.recallable:
            return None
        stamp = self._stamps.get(scope.tenant)
        if stamp is None or still_current(scope, stamp):
            return None
        return Claim(principal, scope, session.documents)

    # checking

    async def _check(self, tenant: str, doubts: Mapping[Session, Claim]) -> None:
        """In the time that is left to them; whoever isn't known of by then ends."""
        waiting = {claim: session for session, claim in doubts.items()}
        self._in_check.update(doubts)
        try:
            with anyio.CancelScope(deadline=max(map(self._due, doubts))):
                try:
                    await self._review(tenant, waiting)
                except GatewayError as error:
                    self._on_failure(error.code)
                    await anyio.sleep(self._poll_s)
                    self.wake()
        finally:
            self._in_check.difference_update(waiting.values())

    async def _review(self, tenant: str, waiting: dict[Claim, Session]) -> None:
        """Who is known of is taken out of ``waiting``. Those that a revocation names don't queue behind the
        others, most of which will be found unharmed.
        """
        asked_at = anyio.current_time()
        stamp = await self._rights.stamp(tenant)
        revoked = await self._rights.revoked(tenant, stamp)
        named = {claim for claim in waiting if claim.named_in(revoked)}
        failures: set[str] = set()

        def tell(claim: Claim, finding: Finding) -> None:
            if not isinstance(finding, GatewayError):
                self._settle(waiting.pop(claim), claim, finding, asked_at)
                return
            if finding.code not in failures:
                failures.add(finding.code)
                self._on_failure(finding.code)
            tasks.start_soon(self._let_go, claim, waiting)

        async with anyio.create_task_group() as tasks:
            for places, claims in ((self._urgent_places, named), (self._places, waiting.keys() - named)):
                Review(self._rights, stamp, places, tasks, tell).begin(claims)

    async def _let_go(self, claim: Claim, waiting: dict[Claim, Session]) -> None:
        """It failed; the next look asks again."""
        await anyio.sleep(self._poll_s)
        self._in_check.discard(waiting.pop(claim))
        self.wake()

    def _settle(self, session: Session, claim: Claim, found: AccessScope | Loss, asked_at: float) -> None:
        self._in_check.discard(session)
        if isinstance(found, Loss):
            _end(session, found)
            return
        if session.scope is claim.scope:
            # what was found meanwhile is for the question's own check, which comes before its first byte
            session.scope = found
        self._sound_at[session] = max(asked_at, self._sound_at.get(session, asked_at))
        if self._doubted(session) is not None:
            self.wake()  # there was other news meanwhile

    # when nobody can tell

    def _due(self, session: Session) -> float:
        """When it ends unless its rights are known to hold. Whoever came after the last good step was let in
        after it.
        """
        return self._sound_at.get(session, self._good_at) + self._bound_s

    async def _end_stale(self) -> None:
        """An end is never due sooner than it was before, so nothing has to wake it."""
        if self._good_at == float("-inf"):
            await anyio.sleep(self._poll_s)
        while True:
            now = anyio.current_time()
            overdue = [s for s in self._registry.identified() if self._due(s) <= now]
            if overdue and now < self._good_at + self._bound_s:
                self._on_failure(DeadlineExceeded.code)
            for session in overdue:
                session.cancel(CloseReason.FEED_STALE)
            dues = [self._good_at + self._bound_s, *map(self._due, self._registry.identified())]
            await anyio.sleep_until(min((due for due in dues if due > now), default=now + self._poll_s))

    # other processes

    async def _tell(self) -> None:
        while True:
            await self._untold.wait()
            self._untold = anyio.Event()
            for hints in self._hints:
                await hints.tell()


def _end(session: Session, loss: Loss) -> None:
    session.revoke(loss.event, loss.error, loss.accepted_at)
