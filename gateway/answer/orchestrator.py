"""The whole path of one question, from a verified principal to the last event."""

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from gateway.access.authorizer import Authorizer, DocumentRef
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.admission.stage import stage_time
from gateway.answer.conversation import Conversations
from gateway.answer.evidence import check_calibrated
from gateway.answer.findings import findings_again
from gateway.answer.making import Making
from gateway.answer.outcome import KeptAnswer, rests_on
from gateway.answer.permissions import Permissions
from gateway.answer.question import Question
from gateway.answer.report import done_again, done_of, meta_of
from gateway.answer.reuse.caching import AnswerCache
from gateway.answer.reuse.flight import Flight, LeftAlone, NotShared, Seat
from gateway.answer.reuse.flights import Flights
from gateway.answer.reuse.keys import AnswerKeys
from gateway.answer.reuse.rules import Reuse, reuse_of
from gateway.context import Deadline, RequestContext
from gateway.errors import ReleaseUnresolved
from gateway.observe.hooks import CacheRead, Stage
from gateway.observe.trace import Trace
from gateway.observe.tracelog import Told
from gateway.release.catalog import ReleaseCatalog
from gateway.stream.protocol import Usage
from gateway.stream.session import Session

#: an answer that is told again goes to the session in slices, which then can hold it back
_SLICE_CHARS = 4096


@dataclass(frozen=True, slots=True)
class _Asked:
    """One bound question, and who waits for its answer."""

    session: Session
    trace: Trace
    context: RequestContext
    question: Question
    reuse: Reuse
    rewrite: Usage | None


class Orchestrator:
    """Every step in the order of the contract. Errors are raised; the caller ends the session."""

    def __init__(
        self,
        *,
        authorizer: Authorizer,
        releases: ReleaseCatalog,
        permissions: Permissions,
        conversations: Conversations,
        making: Making,
        flights: Flights,
        keys: AnswerKeys,
        cache: AnswerCache | None,
        shared: bool,
        catalog_cap_ms: int,
    ) -> None:
        """``shared``: who asks what is just being answered gets that answer."""
        self._authorizer = authorizer
        self._releases = releases
        self._permissions = permissions
        self._conversations = conversations
        self._making = making
        self._flights = flights
        self._keys = keys
        self._cache = cache
        self._shared = shared
        self._catalog_cap_ms = catalog_cap_ms

    async def bind(
        self, principal: Principal, knowledge_base: str | None, trace: Trace, deadline: Deadline
    ) -> RequestContext:
        """Steps 4-6: what the caller may see, of which release. Fails closed."""
        self._permissions.check_fresh()
        with stage_time(deadline, "catalog", self._catalog_cap_ms):
            with trace.stage(Stage.AUTHORIZE):
                scope = await self._authorizer.authorize(principal, knowledge_base)
            with trace.stage(Stage.BIND):
                release = await self._releases.active(scope.tenant, scope.kb_id)
        if release is None:
            raise ReleaseUnresolved(f"{scope.knowledge_base} has no active release yet")
        trace.note(
            tenant=scope.tenant,
            knowledge_base=scope.knowledge_base,
            scope=scope.digest,
            acl_revision=scope.acl_revision,
            release=release.release_id,
            release_sequence=release.sequence,
            space=release.space.space_id,
            retrieval_config=release.config.version,
            model_adapter=release.model,
        )
        context = RequestContext(trace.request_id, trace.trace_id, principal, scope, release, deadline)
        trace.context = context
        return context

    async def verify(self, context: RequestContext, refs: frozenset[DocumentRef]) -> AccessScope:
        """As ``Permissions.verify``."""
        return await self._permissions.verify(context, refs)

    async def answer(
        self, session: Session, trace: Trace, principal: Principal, question: Question, deadline: Deadline
    ) -> None:
        """Steps 4-16. Before ``session.open`` an error is a status, after it an event."""
        context = await self.bind(principal, question.knowledge_base, trace, deadline)
        session.scope = context.scope
        check_calibrated(context.release.config)  # no model is asked for what no gate can judge
        told = await self._conversations.standalone(context, trace, question)
        question = told.question
        trace.question, trace.searched = question.own or question.text, question.text if question.own else ""
        trace.rewritten_by = question.rewritten_by
        asked = _Asked(session, trace, context, question, self._reuse(context, question), told.usage)
        kept = await self._kept(asked)
        if kept is not None and await self._told_again(asked, kept):
            return
        alone = not self._shared
        while True:
            try:
                return await self._fly(asked, kept, alone=alone)
            except LeftAlone:
                continue
            except NotShared:
                alone = True

    async def examine(
        self, session: Session, trace: Trace, principal: Principal, question: Question, deadline: Deadline
    ) -> None:
        """Steps 4-13 without an answer: what was found, and why it would be refused, is on the trace."""
        context = await self.bind(principal, question.knowledge_base, trace, deadline)
        session.scope = context.scope
        trace.question = question.text
        found = await self._making.find(session, trace, context, question)
        session.scope = await self.verify(context, session.documents)
        trace.reasons = tuple(reason.value for reason in found.reasons)

    def _reuse(self, context: RequestContext, question: Question) -> Reuse:
        return reuse_of(
            self._keys,
            context,
            question,
            model=self._making.model(context.release),
            max_output_tokens=self._making.output_tokens(question),
        )

    # -- an answer that was kept ------------------------------------------------------------------

    async def _kept(self, asked: _Asked) -> KeptAnswer | None:
        """Step 7: what there is for this key, for whomever it was made."""
        if self._cache is None or asked.reuse.kept_as is None:
            asked.trace.hooks.cache(CacheRead.SKIP)
            return None
        with asked.trace.stage(Stage.CACHE):
            return await self._cache.read(asked.reuse.kept_as)

    async def _told_again(self, asked: _Asked, kept: KeptAnswer) -> bool:
        """False, and nothing is told, when this asker may not see now what it rests on."""
        if not await self._may_see(asked, kept.opening.documents):
            asked.trace.hooks.cache(CacheRead.STALE)
            return False
        asked.trace.hooks.cache_hit(kept.ending.usage.input_tokens + kept.ending.usage.output_tokens)
        await self._tell(asked, kept)
        return True

    async def _may_see(self, asked: _Asked, documents: frozenset[DocumentRef]) -> bool:
        """Whether he may see all of them now, by the catalog's own word on each. They are in his session by
        then: what is revoked meanwhile ends it.
        """
        asked.session.documents = documents
        with asked.trace.stage(Stage.RECHECK):
            if await self._permissions.cover(asked.context, documents):
                asked.session.scope = await self.verify(asked.context, documents)
                return True
        asked.session.documents = frozenset()
        return False

    async def _tell(self, asked: _Asked, kept: KeptAnswer) -> None:
        session, trace = asked.session, asked.trace
        trace.note(told=Told.KEPT.value, model=kept.opening.model, kept_s=round(time.time() - kept.made_at))
        trace.findings = findings_again(kept)
        session.open(meta_of(asked.context, kept.opening, trace.searched, cached=True))
        for start in range(0, len(kept.text), _SLICE_CHARS):
            trace.text_sent()
            await session.write(kept.text[start : start + _SLICE_CHARS])
        await self._conversations.keep(asked.context, asked.question, rests_on(kept.opening, kept.ending))
        session.complete(done_again(kept, trace, asked.rewrite))

    # -- an answer that is made -------------------------------------------------------------------

    async def _fly(self, asked: _Asked, stale: KeptAnswer | None, *, alone: bool) -> None:
        """Raises LeftAlone and NotShared, before the session is open only. ``stale`` is no use to him."""

        async def make(flight: Flight) -> None:
            await self._make(flight, asked, stale, alone=alone)

        session, trace = asked.session, asked.trace
        key = None if alone else asked.reuse.key
        seat: Seat | None = None
        try:
            async with self._flights.aboard(key, session, trace, asked.context.deadline, make) as seat:
                await self._read(asked, seat)
        finally:
            if seat is not None and (seat.leads or session.opened):  # else nothing of it is his
                trace.take(seat.trace, timed=seat.leads)

    async def _read(self, asked: _Asked, seat: Seat) -> None:
        """One member's part: he looks, is told, and reads."""
        session, trace = asked.session, asked.trace
        if seat.leads:
            opening = await seat.opening()
        else:
            with trace.stage(Stage.WAIT):
                opening = await seat.opening()
            trace.note(made_by=seat.trace.request_id)
        if seat.found_here:
            session.scope = await self.verify(asked.context, session.documents)
        elif not await self._may_see(asked, opening.documents):
            raise NotShared
        trace.hooks.flight(leads=seat.found_here)
        trace.note(told=(Told.MADE if seat.found_here else Told.SHARED).value)
        session.open(meta_of(asked.context, opening, trace.searched))
        seat.want()
        while text := await seat.text():
            trace.text_sent()
            await session.write(text)
        ending = await seat.ending()
        trace.take(seat.trace, timed=seat.leads)
        await self._conversations.keep(asked.context, asked.question, rests_on(opening, ending))
        session.complete(done_of(ending, trace, asked.rewrite))

    async def _make(self, flight: Flight, asked: _Asked, stale: KeptAnswer | None, *, alone: bool) -> None:
        """By the leader's question and rights, in the time of whoever has the most."""
        reuse, context = asked.reuse, replace(asked.context, deadline=flight.deadline)
        if self._cache is None:
            await self._making.make(flight, asked.session, context, asked.question, reuse.unkept)
            return
        turn = reuse.kept_as if not alone else None
        async with AsyncExitStack() as stack:
            with flight.trace.stage(Stage.WAIT):
                kept = await stack.enter_async_context(self._cache.turn(turn, context.deadline, stale))
            if kept is not None:
                await flight.repeat(kept)
                return
            await self._making.make(flight, asked.session, context, asked.question, reuse.unkept)
            await self._cache.keep(reuse.kept_as, flight.landed())
