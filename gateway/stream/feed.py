"""The revocation feed: ends running streams whose rights are gone, and says when nobody can tell."""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

import anyio
import anyio.abc

from gateway.access.authorizer import (
    AccessCatalog,
    Authorizer,
    DocumentRef,
    DropReason,
    Recheck,
    TenantStamp,
    still_current,
)
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.errors import (
    DeadlineExceeded,
    Forbidden,
    GatewayError,
    NotFound,
    PermissionsChanged,
    RevocationFeedStale,
    TokenExpired,
)
from gateway.stream.protocol import Revoked
from gateway.stream.registry import SessionRegistry
from gateway.stream.revocation import RevocationCatalog, RevocationKind, RevocationNews, RevocationRecord
from gateway.stream.session import CloseReason, Session

#: verdicts that end a running answer; a version that was only replaced or ran out stays its evidence
_ENDING = frozenset(
    {DropReason.REVOKED, DropReason.ACL, DropReason.DELETED, DropReason.UNKNOWN, DropReason.FOREIGN}
)
#: the order in which the client is told of several
_FIRST_TOLD = (
    RevocationKind.USER,
    RevocationKind.KNOWLEDGE_BASE,
    RevocationKind.DOCUMENT,
    RevocationKind.GROUP,
)
_ACL_CHANGED = "acl_changed"
_TOKEN_EXPIRED = "token_expired"  # noqa: S105 - a reason, no secret


class ChangeHint(Protocol):
    """Says early that rights may have changed; may stay silent or cry wolf, never has to be believed."""

    async def wait(self) -> None:
        """Until the next hint."""
        ...


class RevocationFeed:
    """One a process, over all of its sessions.

    Each step reads the stamps of the tenants that have sessions, in one statement, and re-verifies every
    session whose rights were last verified under an older one. A step that is ``bound_s`` old means that
    rights can't be followed: protected access is refused and what runs ends.
    """

    def __init__(
        self,
        registry: SessionRegistry,
        catalog: AccessCatalog,
        revocations: RevocationCatalog,
        authorizer: Authorizer,
        recheck: Recheck,
        *,
        poll_s: float,
        bound_s: float,
        leeway_s: float,
        clock: Callable[[], float] = time.time,
        on_failed_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``leeway_s``: how long after its end a token is still believed; ``clock``: its clock.
        ``on_failed_step`` gets the code of what went wrong.
        """
        self._registry = registry
        self._catalog = catalog
        self._revocations = revocations
        self._authorizer = authorizer
        self._recheck = recheck
        self._poll_s = poll_s
        self._bound_s = bound_s
        self._leeway_s = leeway_s
        self._clock = clock
        self._on_failed_step = on_failed_step
        self._good_until = float("-inf")
        self._woken = anyio.Event()

    def check_fresh(self) -> None:
        """Raises RevocationFeedStale unless the last good step is young enough."""
        if time.monotonic() >= self._good_until:
            raise RevocationFeedStale()

    def wake(self) -> None:
        """Makes the next step now: something was revoked right here, or somebody gave a hint."""
        self._woken.set()

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Steps until cancelled; started once the first step was good."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_stale)
            while True:
                if await self._tried():
                    task_status.started()
                    task_status = anyio.TASK_STATUS_IGNORED
                with anyio.move_on_after(self._poll_s):
                    await self._woken.wait()

    async def step(self) -> None:
        """One look; good when it ends. Raises Unavailable of whichever part didn't answer."""
        self._woken = anyio.Event()
        began = time.monotonic()
        sessions = self._registry.identified()
        stamps = await self._catalog.tenant_stamps({s.principal.tenant for s in sessions if s.principal})
        failures: list[GatewayError] = []
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(self._follow, session, stamps, failures)
        if failures:
            raise failures[0]
        self._good_until = began + self._bound_s

    async def _tried(self) -> bool:
        try:
            with anyio.move_on_after(self._bound_s) as scope:
                await self.step()
        except GatewayError as error:
            self._on_failed_step(error.code)
            return False
        if scope.cancelled_caught:
            self._on_failed_step(DeadlineExceeded.code)
        return not scope.cancelled_caught

    async def _end_stale(self) -> None:
        while True:
            await anyio.sleep(max(self._good_until - time.monotonic(), self._poll_s))
            if time.monotonic() >= self._good_until:
                for session in self._registry.identified():
                    session.cancel(CloseReason.FEED_STALE)

    async def _follow(
        self, session: Session, stamps: Mapping[str, TenantStamp], failures: list[GatewayError]
    ) -> None:
        """Ends the session, or notes that its rights hold as of the stamp."""
        principal, scope = session.principal, session.scope
        if principal is None or session.close_reason is not None:
            return
        if self._clock() >= principal.expires_at + self._leeway_s:
            session.revoke(Revoked(_TOKEN_EXPIRED, principal.expires_at), TokenExpired())
        elif scope is not None and not still_current(scope, stamps[principal.tenant]):
            try:
                await self._verify(session, principal, scope)
            except GatewayError as error:
                failures.append(error)

    async def _verify(self, session: Session, principal: Principal, scope: AccessScope) -> None:
        documents = session.documents
        lost = await self._what_was_lost(principal, scope, documents)
        if isinstance(lost, AccessScope):
            # what was found meanwhile is for the question's own check, which comes before its first byte
            if session.scope is scope:
                session.scope = lost
            return
        news = await self._revocations.revocations_since(scope.tenant, scope.revocation_epoch)
        record = _to_blame(news, principal, scope, documents)
        if record is None:
            session.revoke(Revoked(_ACL_CHANGED, news.now), lost, time.monotonic())
        else:
            since = time.monotonic() - max(0.0, news.now - record.created_at)
            session.revoke(Revoked(record.kind.value, record.created_at), lost, since)

    async def _what_was_lost(
        self, principal: Principal, scope: AccessScope, documents: frozenset[DocumentRef]
    ) -> AccessScope | GatewayError:
        """The scope as it is now when it still covers the documents, else what the caller is told."""
        try:
            fresh = await self._authorizer.still_holds(principal, scope)
        except (Forbidden, NotFound) as error:
            return error
        verdicts = await self._recheck.check(fresh, tuple(documents), self._clock())
        return PermissionsChanged() if _ENDING.intersection(verdicts.values()) else fresh


def _to_blame(
    news: RevocationNews, principal: Principal, scope: AccessScope, documents: frozenset[DocumentRef]
) -> RevocationRecord | None:
    """The revocation that the client is told of; None: it was a change of an ACL, or a deletion."""
    mine: Mapping[RevocationKind, Collection[str]] = {
        RevocationKind.USER: principal.accountable,
        RevocationKind.KNOWLEDGE_BASE: {scope.knowledge_base},
        RevocationKind.DOCUMENT: {ref.document_id for ref in documents},
        RevocationKind.GROUP: principal.groups,
    }
    hits = [record for record in news.records if record.subject in mine[record.kind]]
    return min(hits, key=lambda record: _FIRST_TOLD.index(record.kind), default=None)
