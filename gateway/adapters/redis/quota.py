"""RedisQuota: what tenants and models may use over all processes, counted by leases in Redis.

Redis doesn't promise to keep what it was told: a restart, a failover or a flush may take leases of running
calls away. So an incarnation names the server that has heard of every lease; when it is gone, or names
another server, nobody starts a call until every call that may have been lost is over. Nor does it promise
to be there: a process that can't reach it goes on within its part, which Redis withholds from the others.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from gateway.adapters.redis.calls import NO_LEASE, Call, RunningCalls
from gateway.adapters.redis.places import Place
from gateway.adapters.redis.returns import Returns
from gateway.adapters.redis.standing import Standing
from gateway.adapters.redis.steps import QuotaServer, QuotaSteps, ReserveReply
from gateway.adapters.redis.terms import QuotaTerms
from gateway.admission.quota import QuotaLease, ReservationKey
from gateway.admission.quota_ledger import Ledger
from gateway.admission.quota_refusal import CALL_WAIT_MS, refusal
from gateway.errors import QuotaExceeded, QuotaUnavailable

_CLOSE_S = 1.0
_NEVER = "never"
_UNKNOWN = "unknown"


class _RedisLease:
    def __init__(self, quota: "RedisQuota", call: Call) -> None:
        self._quota = quota
        self._call = call

    def settle(self, tokens: int | None) -> None:
        self._quota.take_back(self._call, tokens)

    def release(self) -> None:
        self.settle(None)


class RedisQuota:
    """Quota over all processes that share a Redis: one server, Sentinel or Cluster, as ``url`` says.

    ``name`` must be this process' own, and stay the same when it is started again: it then takes the place
    of its predecessor. ``cap_ms`` is the longest a step keeps its caller. Redis must not evict keys
    (``maxmemory-policy noeviction``), and its clock must not be set back by more than a moment.

    A Redis that never saw a gateway looks like one that forgot everything, so it is closed at first;
    ``start_incarnation`` spares a new installation the wait.
    """

    def __init__(self, url: str, terms: QuotaTerms, name: str, cap_ms: int) -> None:
        """Raises ConfigurationError for a URL that means nothing."""
        self._terms = terms
        self._steps = QuotaSteps(url, terms, cap_ms)
        self._standing = Standing(terms, name)
        self._calls = RunningCalls()
        self._ledger = Ledger(terms.window_s, time.monotonic)
        self._returns = Returns(self._steps.settle, max(terms.lease_s, terms.window_s))
        self._alone_at: float | None = None
        self._beating: asyncio.Task[None] | None = None
        self._loss: asyncio.TimerHandle | None = None
        self._closing = asyncio.Event()

    def start(self) -> None:
        """Joins those that share the quota, and stays among them until ``aclose``. The first call does it
        too, but a process that has joined before has its part when Redis is lost.
        """
        if not self._closing.is_set() and (self._beating is None or self._beating.done()):
            self._beating = asyncio.create_task(self._keep_beating())

    async def reserve(
        self,
        key: ReservationKey,
        tenant: str,
        model: str,
        tokens: int,
        on_lost: Callable[[], None] = lambda: None,
    ) -> QuotaLease:
        """As the port says; raises QuotaUnavailable within the cap when Redis doesn't answer or is closed."""
        self.start()
        place = Place.of(key, *self._terms.budgets(tenant, model))
        call = self._calls.get(place)
        if call is None:
            self._check_place()
            _check_unused(place not in self._returns)
            if self._standing.is_alone(time.monotonic()):
                call = self._take_alone(place, tokens, on_lost)
            else:
                call = await self._take_shared(place, tokens, on_lost)
        return _RedisLease(self, call)

    def take_back(self, call: Call, used: int | None) -> None:
        """The call is over. Does nothing when it was before."""
        if not self._calls.remove(call):
            return
        self._ledger.end(call.entry, used)
        if call.is_known:
            self._returns.add(call.place, _UNKNOWN if used is None else used)

    async def ping(self) -> None:
        """Calls may start: Redis is open, or this process goes on alone. Raises QuotaUnavailable."""
        self._check_place()
        if not self._standing.is_alone(time.monotonic()):
            wait_ms = await self._steps.look()
            _check_open(wait_ms == 0, wait_ms)

    async def server(self) -> QuotaServer:
        """Which Redis it is, open or not; changes nothing. Raises QuotaUnavailable."""
        return await self._steps.server()

    async def start_incarnation(self) -> bool:
        """Opens a Redis without an incarnation at once; False when it has one, which then stays as it is.

        Only for a new installation: no gateway may be running a call. Raises QuotaUnavailable.
        """
        return await self._steps.start()

    async def aclose(self) -> None:
        """Gives back what was released, leaves the others and closes the connections, within about a second
        each.
        """
        self._closing.set()
        if self._loss is not None:
            self._loss.cancel()
        if self._beating is not None:
            await self._end_beating(self._beating)
        await self._returns.aclose(_CLOSE_S)
        if self._beating is not None:
            with contextlib.suppress(QuotaUnavailable):
                await self._steps.leave(self._standing, self._alone_ms(time.monotonic()))
        await self._steps.aclose(_CLOSE_S)

    # -- calls --------------------------------------------------------------------------------------

    async def _take_shared(self, place: Place, tokens: int, on_lost: Callable[[], None]) -> Call:
        asked_at = time.monotonic()
        try:
            reply = await self._steps.reserve(place, tokens)
        except BaseException:
            if self._calls.get(place) is None:
                self._returns.add(place, _NEVER)  # nobody knows whether it was taken
            raise
        if reply.word == "over":
            raise self._refusal(place, tokens, reply)
        _check_unused(reply.word != "spent")
        _check_open(reply.word == "held", reply.wait_ms)
        if (call := self._calls.get(place)) is not None:  # its twin was quicker
            return call
        entry = self._ledger.run(place.budgets)
        return self._add(Call(place, entry, on_lost, self._standing.leased_until(asked_at), is_known=True))

    def _take_alone(self, place: Place, tokens: int, on_lost: Callable[[], None]) -> Call:
        part = self._standing.part
        try:
            self._ledger.check([budget.part(part) for budget in place.budgets], tokens)
        except QuotaExceeded as error:
            raise QuotaUnavailable(
                "the shared quota is away, and this process' part of it is used up",
                retry_after_ms=error.retry_after_ms or CALL_WAIT_MS,
            ) from error
        self._alone_at = time.monotonic()
        entry = self._ledger.begin(place.budgets, tokens)
        return self._add(Call(place, entry, on_lost, NO_LEASE, is_known=False))

    def _add(self, call: Call) -> Call:
        self._calls.add(call)
        if self._loss is None:
            self._watch_leases()
        return call

    def _refusal(self, place: Place, tokens: int, reply: ReserveReply) -> QuotaExceeded:
        return refusal(
            place.budgets[reply.budget],
            reply.kind,
            asked=tokens if reply.kind == "tokens" else 1,
            remaining=reply.room,
            wait_ms=reply.wait_ms or CALL_WAIT_MS,
            window_s=self._terms.window_s,
        )

    def _watch_leases(self) -> None:
        """Ends the calls whose leases can't be relied on, and looks again when the next one can't."""
        now = time.monotonic()
        standing = self._standing
        self._calls.end_lost(now, standing.part if standing.keeps_part(now) else 0)
        if self._loss is not None:
            self._loss.cancel()
        at = self._calls.next_loss(now)
        loop = asyncio.get_running_loop()
        self._loss = None if at is None else loop.call_later(at - now, self._watch_leases)

    # -- beats --------------------------------------------------------------------------------------

    async def _keep_beating(self) -> None:
        while not self._closing.is_set():
            before = self._standing.version
            was_in_touch = self._standing.is_in_touch(time.monotonic())
            is_renewed = await self._beat()
            self._watch_leases()
            has_news = not was_in_touch or self._standing.version != before
            if not (is_renewed and has_news):  # else it says at once that it has heard
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), self._terms.beat_s)

    async def _beat(self) -> bool:
        """One beat; False when nothing came of it."""
        asked_at = time.monotonic()
        self._standing.asks(asked_at)
        calls = list(self._calls)
        for call in calls:
            call.is_known = True
        try:
            reply = await self._steps.beat(self._standing, self._alone_ms(asked_at), calls)
        except QuotaUnavailable:
            return False
        self._standing.answered(asked_at, time.monotonic(), reply)
        if reply.renewed:
            for call in calls:
                call.leased_until = self._standing.leased_until(asked_at)
        return reply.renewed

    def _alone_ms(self, now: float) -> int | None:
        return None if self._alone_at is None else round((now - self._alone_at) * 1000)

    async def _end_beating(self, beating: asyncio.Task[None]) -> None:
        """A beat that is under way gets its time: it must not be heard after the leaving."""
        await asyncio.wait({beating}, timeout=_CLOSE_S)
        beating.cancel()
        await asyncio.wait({beating})

    def _check_place(self) -> None:
        if self._closing.is_set():
            raise QuotaUnavailable("this process has left the shared quota")
        if self._standing.is_replaced:
            raise QuotaUnavailable("another process has this one's name in the shared quota")


def _check_unused(is_unused: bool) -> None:
    if not is_unused:
        raise QuotaUnavailable("this reservation has been given back already")


def _check_open(is_open: bool, wait_ms: int) -> None:
    if not is_open:
        raise QuotaUnavailable("running answers are not known yet", retry_after_ms=wait_ms)
