"""The revocation feed by itself: its steps, its checks, and its rules when nobody can tell."""

import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.access.authorizer import (
    AccessCatalog,
    Authorizer,
    CatalogRecheck,
    DocumentRef,
    DropReason,
    TenantStamp,
)
from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.models import Gate
from gateway.errors import AuthorizerUnavailable, CatalogUnavailable, RevocationFeedStale
from gateway.ingest.uploads import ImportRequest, NewDocument
from gateway.stream.channel import EventChannel
from gateway.stream.feed import RevocationFeed
from gateway.stream.protocol import AnswerStatus, Done, Meta, Revoked, Timings, Usage
from gateway.stream.registry import SessionRegistry
from gateway.stream.revocation import RevocationKind
from gateway.stream.rights import Loss, Rights
from gateway.stream.session import CloseReason, Session

PATIENCE_S = 20
META = Meta("req", "trace", "handbook", "rev", 1, "space", "model", False, ())
DONE = Done(AnswerStatus.ANSWERED, (), (), Usage(1, 1, estimated=False), True, False, Timings(1.0, 1.0, 1.0))
NEVER = 1e12
READS = frozenset(
    {
        "tenant_stamp",
        "revocations",
        "acl_classes",
        "api_key",
        "standings",
        "revocations_since",
        "tenant_stamps",
    }
)


_numbers = itertools.count()


class Catalog(MemoryCatalog):
    """Counts the steps, and what else is read; a step may fail or wait."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.fault: Exception | None = None
        self.gate: Gate | None = None
        self.reads: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in READS:
            self.reads[name] += 1
        return super().__getattribute__(name)

    async def tenant_stamps(self, tenants: Collection[str]) -> Mapping[str, TenantStamp]:
        self.steps += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return await super().tenant_stamps(tenants)


class Rechecks(CatalogRecheck):
    """The real one; it waits for whom a test says, fails for others, and counts how many wait at once."""

    def __init__(self, catalog: AccessCatalog) -> None:
        super().__init__(catalog)
        self.gates: dict[str, Gate] = {}
        self.failing: set[str] = set()
        self.waiting = 0
        self.most = 0
        self.begun = 0
        self.asked: list[frozenset[DocumentRef]] = []

    async def check(
        self, scope: AccessScope, refs: Sequence[DocumentRef], now: float
    ) -> Mapping[DocumentRef, DropReason | None]:
        self.begun += 1
        self.asked.append(frozenset(refs))
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        try:
            for name, gate in self.gates.items():
                if name in scope.principals:
                    await gate.wait()
            if not self.failing.isdisjoint(scope.principals):
                raise AuthorizerUnavailable()
            return await super().check(scope, refs, now)
        finally:
            self.waiting -= 1


class Ground:
    """A catalog with one document for the group staff, and a feed over the sessions of a registry.

    Documents are judged by ``rechecks``, or as ever by the catalog alone.
    """

    def __init__(
        self, *, poll_s: float = 3600, bound_s: float = 7200, own_recheck: bool = True, **options: Any
    ) -> None:
        self.catalog = Catalog()
        self.registry = SessionRegistry()
        self.authorizer = Authorizer(self.catalog)
        self.rechecks = Rechecks(self.catalog)
        self.failures: list[str] = []
        self.now = 1000.0
        rights = Rights(
            self.catalog,
            self.catalog,
            self.authorizer,
            self.rechecks if own_recheck else None,
            leeway_s=30,
            clock=lambda: self.now,
        )
        self.rights = rights
        self.feed = RevocationFeed(
            self.registry,
            rights,
            poll_s=poll_s,
            bound_s=bound_s,
            on_failure=self.failures.append,
            **options,
        )
        self.document = ""

    async def revoke(self, kind: RevocationKind, subject: str) -> str:
        return (await self.catalog.revoke("acme", kind, subject, "left", "olga")).revocation_id

    @asynccontextmanager
    async def answering(self, *people: str) -> AsyncIterator[list[Session]]:
        """A running answer for each, from the one document; the feed doesn't run yet."""
        self.document = await self.learn("a")
        sessions = [await self._session(person) for person in people]
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(PATIENCE_S):
                for session in sessions:
                    await tasks.start(self._registered, session)
                yield sessions
            tasks.cancel_scope.cancel()

    async def learn(self, source: str) -> str:
        """The id of a new document for the group staff."""
        acl = Acl.parse(["group:staff"], [])
        document = NewDocument(source, source, "text/plain", "key", "hash", 1, acl)
        accepted = await self.catalog.accept_import(
            ImportRequest("acme", "handbook", "importer", (document,), False, False, 3600.0)
        )
        return accepted.documents[0].document_id

    async def _session(self, person: str) -> Session:
        session = Session(f"req-{person}-{next(_numbers)}", EventChannel(1000, 0, 1))
        groups = frozenset({"staff"})
        session.principal = Principal("acme", person, groups, frozenset({"ask"}), NEVER)
        session.scope = await self.authorizer.authorize(session.principal, "handbook")
        session.documents = frozenset({DocumentRef(self.document, 1)})
        session.open(META)
        return session

    async def _registered(self, session: Session, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with self.registry.registered(session):
            task_status.started()
            await anyio.sleep_forever()

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.feed.run)
            yield
            tasks.cancel_scope.cancel()


async def ended(session: Session) -> Revoked:
    """The event with which it ended."""
    async for _, event in session.events():
        if isinstance(event, Revoked):
            return event
    raise AssertionError(f"it ended as {session.close_reason}")


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await anyio.lowlevel.checkpoint()


async def test_a_step_without_news_asks_once_and_checks_nobody() -> None:
    """However many sessions there are."""
    ground = Ground()
    async with ground.answering("ann", "bob", "eve"):
        for _ in range(3):
            await ground.feed.step()
        assert (ground.catalog.steps, ground.rechecks.begun) == (3, 0)


async def test_a_session_that_cannot_be_checked_ends_alone() -> None:
    """Others are checked, the feed stays fresh; the one ends after the bound, as nobody can tell."""
    ground = Ground(poll_s=0.02, bound_s=0.3)
    ground.rechecks.failing = {"user:eve"}
    async with ground.answering("eve", "bob") as (eve, bob), ground.followed():
        await ground.revoke(RevocationKind.USER, "somebody")
        await until(lambda: eve.close_reason is not None)
        assert eve.close_reason is CloseReason.FEED_STALE
        assert bob.close_reason is None
        assert bob.scope is not None
        assert bob.scope.revocation_epoch == 1
        ground.feed.check_fresh()
        assert set(ground.failures) >= {"authorizer_unavailable"}


async def test_a_check_that_failed_is_made_again_beside_one_that_hangs() -> None:
    """Whoever hangs is waited for by nobody."""
    ground = Ground(poll_s=0.01, bound_s=7200)
    ground.rechecks.failing = {"user:ann"}
    ground.rechecks.gates = {"user:eve": Gate()}
    async with ground.answering("eve", "ann") as (_, ann), ground.followed():
        await ground.revoke(RevocationKind.USER, "somebody")
        await ground.rechecks.gates["user:eve"].reached.wait()
        await until(lambda: bool(ground.failures))
        ground.rechecks.failing = set()
        await until(lambda: ann.scope is not None and ann.scope.revocation_epoch == 1)


async def test_sessions_whose_checks_hang_hold_up_nobody_who_is_named() -> None:
    """Both places are taken by checks that never end; who was revoked ends at once."""
    ground = Ground()
    ground.rechecks.gates = {"group:staff": Gate()}
    async with ground.answering("a", "b", "c", "d", "ann") as sessions, ground.followed():
        await ground.revoke(RevocationKind.USER, "ann")
        ground.feed.wake()
        assert (await ended(sessions[-1])).reason == "user"
        assert [s.close_reason for s in sessions[:-1]] == [None] * 4


async def test_many_sessions_are_checked_a_few_at_a_time() -> None:
    """A tenant with many answers leaves the database to the questions; all are checked in the end."""
    ground = Ground()
    gate = Gate()
    ground.rechecks.gates = {"group:staff": gate}
    async with ground.answering(*(f"p{n}" for n in range(40))) as sessions, ground.followed():
        await ground.revoke(RevocationKind.USER, "somebody")
        ground.feed.wake()
        await gate.reached.wait()
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        gate.release.set()
        await until(lambda: all(s.scope is not None and s.scope.revocation_epoch == 1 for s in sessions))
        assert ground.rechecks.most <= 4
        assert ground.rechecks.begun == 40


@pytest.mark.parametrize("own_recheck", [False, True])
@pytest.mark.parametrize("people", [1, 256])
async def test_a_change_is_followed_with_few_questions(people: int, own_recheck: bool) -> None:
    """However many answers there are: each asker is resolved once, and all documents are read at once; only
    somebody else's word on them is asked for by scope.
    """
    ground = Ground(own_recheck=own_recheck)
    names = [f"p{n % people}" for n in range(256)]
    async with ground.answering(*names) as sessions, ground.followed():
        await ground.feed.step()
        ground.catalog.reads.clear()
        await ground.revoke(RevocationKind.USER, "somebody")
        await ground.feed.step()
        assert {s.scope.revocation_epoch for s in sessions if s.scope is not None} == {1}
        standings = people if own_recheck else 1
        assert ground.catalog.reads["standings"] <= standings + 1
        assert ground.catalog.reads.total() - ground.catalog.reads["standings"] <= 4


@pytest.mark.parametrize(
    "kind", [RevocationKind.GROUP, RevocationKind.KNOWLEDGE_BASE, RevocationKind.DOCUMENT]
)
async def test_a_loss_of_many_is_told_with_few_questions(kind: RevocationKind) -> None:
    """Of all of them at once."""
    ground = Ground(own_recheck=False)
    async with ground.answering(*(f"p{n}" for n in range(256))) as sessions:
        subjects = {RevocationKind.GROUP: "staff", RevocationKind.KNOWLEDGE_BASE: "handbook"}
        await ground.revoke(kind, subjects.get(kind, ground.document))
        ground.catalog.reads.clear()
        await ground.feed.step()
        assert {(await ended(session)).reason for session in sessions} == {kind.value}
        assert ground.catalog.reads.total() <= 12


async def test_the_answers_of_one_asker_are_judged_together_and_end_each_for_itself() -> None:
    """Somebody else is asked once, for the documents of all of them; one document is gone."""
    ground = Ground()
    async with ground.answering("ann", "ann", "ann") as (first, second, third):
        other = await ground.learn("b")
        second.documents = frozenset({DocumentRef(other, 1)})
        await ground.feed.step()
        ground.rechecks.asked.clear()
        await ground.catalog.delete_document("acme", other)
        await ground.feed.step()
        assert ground.rechecks.asked == [first.documents | second.documents]
        assert (await ended(second)).reason == "document"
        assert (first.close_reason, third.close_reason) == (None, None)


async def test_an_answer_that_is_whole_can_still_lose_its_rights() -> None:
    """While some of it is unread; what was read to its end is over."""
    ground = Ground()
    async with ground.answering("ann", "ann") as (unread, read):
        for session in (unread, read):
            session.complete(DONE)
        assert [event async for _, event in read.events()] == [META, DONE]
        await ground.revoke(RevocationKind.USER, "ann")
        await ground.feed.step()
        assert (await ended(unread)).reason == "user"
        assert read.close_reason is CloseReason.COMPLETED


async def test_nobody_runs_longer_than_the_bound_on_an_old_word() -> None:
    """A step that was good late is no word on whom it makes doubtful: his bound runs from the one before."""
    ground = Ground(poll_s=0.02, bound_s=1.0)
    ground.rechecks.gates["user:ann"] = Gate()
    async with ground.answering("ann") as (ann,), ground.followed():
        ground.catalog.fault = CatalogUnavailable()
        began = anyio.current_time()
        await ground.revoke(RevocationKind.USER, "somebody")
        await anyio.sleep_until(began + 0.7)  # most of the bound passes
        ground.catalog.fault = None
        await ground.rechecks.gates["user:ann"].reached.wait()
        ground.catalog.fault = CatalogUnavailable()  # the feed stays fresh for a bound from here
        await until(lambda: ann.close_reason is not None)
        assert ann.close_reason is CloseReason.FEED_STALE
        ground.feed.check_fresh()


async def test_an_epoch_that_rises_during_a_check_asks_for_another_one() -> None:
    """The first check found nothing wrong, as of its own moment."""
    ground = Ground()
    gate = ground.rechecks.gates["user:ann"] = Gate()
    async with ground.answering("ann") as (ann,), ground.followed():
        await ground.revoke(RevocationKind.USER, "somebody")
        ground.feed.wake()
        await gate.reached.wait()
        before = ground.catalog.steps
        await ground.revoke(RevocationKind.GROUP, "staff")
        ground.feed.wake()
        await until(lambda: ground.catalog.steps > before)
        gate.release.set()
        assert (await ended(ann)).reason == "group"


async def test_what_was_lifted_before_anybody_looked_ends_nothing() -> None:
    """The rights are there."""
    ground = Ground()
    async with ground.answering("ann") as (ann,):
        await ground.catalog.lift("acme", await ground.revoke(RevocationKind.USER, "ann"))
        await ground.feed.step()
        assert ann.close_reason is None
        assert ann.scope is not None
        assert ann.scope.revocation_epoch == 2


async def test_documents_found_during_a_check_are_left_to_the_question() -> None:
    """Its own check comes before its first byte; the feed takes the new stamp for the old documents only."""
    ground = Ground()
    gate = ground.rechecks.gates["user:ann"] = Gate()
    async with ground.answering("ann") as (ann,), ground.followed():
        bound = ann.scope
        await ground.revoke(RevocationKind.USER, "somebody")
        ground.feed.wake()
        await gate.reached.wait()
        ann.scope = await ground.authorizer.authorize(ann.principal, "handbook")  # type: ignore[arg-type]  # it has one
        mine = ann.scope
        gate.release.set()
        await until(lambda: ground.rechecks.waiting == 0)
        await ground.feed.step()
        assert ann.scope is mine
        assert mine is not bound


class Restored:
    """A catalog that is replaced by an older copy of itself."""

    def __init__(self, catalog: Any) -> None:
        self.current = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current, name)


async def test_a_restored_catalog_is_followed_from_its_own_beginning() -> None:
    """Its epochs say nothing beside the old ones: a revocation of an old number is in force too."""
    ground = Ground()
    async with ground.answering("ann") as (ann,):
        for name in ("x", "y", "z"):
            await ground.revoke(RevocationKind.USER, name)
        await ground.feed.step()
        other = MemoryCatalog()
        await other.revoke("acme", RevocationKind.GROUP, "staff", "dissolved", "olga")
        restored: Any = Restored(other)
        rights = Rights(restored, restored, Authorizer(restored), CatalogRecheck(restored), leeway_s=0)
        await RevocationFeed(ground.registry, rights, poll_s=1, bound_s=2).step()
        assert ann.scope is not None
        assert ann.scope.revocation_epoch == 3
        assert (await ended(ann)).reason == "group"


@pytest.mark.parametrize("fault", ["failing", "hanging"])
async def test_a_catalog_that_does_not_answer_makes_the_feed_stale_until_it_does(fault: str) -> None:
    """Then everything that runs ends; afterwards everything is as before."""
    ground = Ground(poll_s=0.02, bound_s=0.2)
    async with ground.answering("ann") as (ann,), ground.followed():
        ground.feed.check_fresh()
        if fault == "failing":
            ground.catalog.fault = CatalogUnavailable()
        else:
            ground.catalog.gate = Gate()
        await until(lambda: ann.close_reason is not None)
        assert ann.close_reason is CloseReason.FEED_STALE
        with pytest.raises(RevocationFeedStale):
            ground.feed.check_fresh()
        with pytest.raises(RevocationFeedStale):
            await ground.feed.ready()
        ground.catalog.fault = ground.catalog.gate = None
        while not await is_fresh(ground.feed):
            await anyio.lowlevel.checkpoint()


async def is_fresh(feed: RevocationFeed) -> bool:
    try:
        feed.check_fresh()
    except RevocationFeedStale:
        return False
    return True


async def test_a_feed_that_never_looked_lets_nobody_in() -> None:
    """It fails closed from the start."""
    with pytest.raises(RevocationFeedStale):
        Ground().feed.check_fresh()


class Flood:
    """Hints without end; counts what it is told to tell."""

    def __init__(self) -> None:
        self.hints = 0
        self.told = 0

    async def follow(self, hinted: Callable[[], None]) -> None:
        while True:
            self.hints += 1
            hinted()
            await anyio.lowlevel.checkpoint()

    async def tell(self) -> None:
        self.told += 1


async def test_a_flood_of_hints_makes_few_steps() -> None:
    """One at a time, with a pause between their beginnings."""
    flood = Flood()
    ground = Ground(hints=[flood])
    began = anyio.current_time()
    async with ground.answering(), ground.followed():
        await until(lambda: ground.catalog.steps >= 10)
        took = anyio.current_time() - began
        assert ground.catalog.steps <= took / 0.01 + 1
        assert flood.hints > 2 * ground.catalog.steps


async def test_what_was_narrowed_here_is_told_to_the_others() -> None:
    """A hint from elsewhere isn't passed on."""
    flood = Flood()
    ground = Ground(hints=[flood])
    async with ground.answering(), ground.followed():
        ground.feed.wake()
        await until(lambda: ground.catalog.steps > 3)
        assert flood.told == 0
        ground.feed.announce()
        await until(lambda: flood.told == 1)


def test_a_token_is_believed_as_long_as_its_verifier_believes_it() -> None:
    """Tokens have a leeway, API keys none."""
    ground = Ground()
    token = Principal("acme", "ann", frozenset(), frozenset(), 1000.0)
    key = Principal("acme", "apikey:ci", frozenset(), frozenset(), 1000.0, "ann", "k1")
    table: list[tuple[float, Principal, bool]] = [
        (999.9, token, False),
        (1029.9, token, False),
        (1030.0, token, True),
        (999.9, key, False),
        (1000.0, key, True),
    ]
    for now, principal, over in table:
        ground.now = now
        loss = ground.rights.expired(principal)
        assert isinstance(loss, Loss) is over
        assert loss is None or loss.event == Revoked("token_expired", 1000.0)
