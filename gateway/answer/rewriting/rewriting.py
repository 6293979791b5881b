"""Telling a follow-up anew by the answer model. Optional: nothing that it raises goes on, rules do it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Protocol

import anyio

from gateway.access.authorizer import DocumentRef, DocumentStanding
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.answer.calls.calling import ModelCalls
from gateway.answer.rewriting.call import RewriteCall
from gateway.answer.rewriting.fitting import fitting
from gateway.answer.rewriting.prompt import most_tokens, rewrite_prompt
from gateway.context import Deadline, RequestContext
from gateway.errors import (
    CatalogUnavailable,
    DeadlineExceeded,
    Overloaded,
    QuotaExceeded,
    QuotaUnavailable,
    UpstreamFailed,
)
from gateway.observe.hooks import RewriteSkip, Stage
from gateway.observe.trace import Trace
from gateway.stream.protocol import Usage

#: what is sent of a conversation at the most: so many of its questions, and so much of each
_MOST_QUESTIONS = 6
_QUESTION_CHARS = 500


class Said(Protocol):
    """A question that the asker has put before, and the documents that its answer could rest on."""

    @property
    def question(self) -> str: ...

    @property
    def documents(self) -> frozenset[DocumentRef]: ...


class Standings(Protocol):
    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        """As ``AccessCatalog.standings``."""
        ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    """``text`` stands alone; it is '' where rules are to tell the question, for the reason ``skip``.
    ``usage`` is of a call that was answered, whatever came of it.
    """

    text: str = ""
    skip: RewriteSkip | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class RewriteCaps:
    """Milliseconds: for all of it, places and quota included; for a look at the catalog; and what stays for
    the answer's own first token.
    """

    rewrite_ms: int
    catalog_ms: int
    first_token_ms: int


class Rewriting:
    """A call of the first choice for the release, in one of the places of answers, with its quota and through
    its breaker. Nothing is asked twice.
    """

    def __init__(
        self, calls: ModelCalls, generation: Bulkhead, standings: Standings, caps: RewriteCaps
    ) -> None:
        self._calls = calls
        self._generation = generation
        self._standings = standings
        self._caps = caps

    async def tell(
        self, context: RequestContext, trace: Trace, question: str, said: Sequence[Said]
    ) -> Rewritten:
        """``said`` is what its asker may see now, the newest first; of it only what the model is cleared for
        is sent, up to the first that it isn't.
        """
        calls = self._calls.of(context.release)
        model = calls.first.model
        history = await self._cleared(context, said, model.max_sensitivity)
        if not history:
            return Rewritten(skip=RewriteSkip.NOT_CLEARED)
        if not calls.first.breaker.admits:
            return Rewritten(skip=RewriteSkip.LEFT_ALONE)
        trace.note(rewrite_model=model.name, rewrite_questions=len(history))
        prompt = rewrite_prompt(question, history)
        call = RewriteCall(model, prompt, trace)
        with trace.stage(Stage.REWRITE):
            text = await self._text(calls, call, context, most_tokens(prompt))
        if not isinstance(text, RewriteSkip):
            text = fitting(text, question, history) if call.whole else RewriteSkip.MALFORMED
        usage = call.usage if call.opened else None
        if isinstance(text, RewriteSkip):
            return Rewritten(skip=text, usage=usage)
        return Rewritten(text, usage=usage)

    async def _text(
        self, calls: ModelCalls, call: RewriteCall, context: RequestContext, tokens: int
    ) -> str | RewriteSkip:
        """As the model wrote it, or why there is none."""
        spare = Deadline(context.deadline.at - self._caps.first_token_ms / 1000)
        try:
            with stage_time(spare, "rewrite", self._caps.rewrite_ms) as stage, anyio.CancelScope() as lease:
                with await self._generation.acquire(stage):
                    return await calls.run_aside(
                        call, context, tokens=tokens, on_lost=lambda: lease.cancel(), deadline=stage
                    )
        except Overloaded:
            return RewriteSkip.OVERLOADED
        except (QuotaExceeded, QuotaUnavailable):
            return RewriteSkip.NO_QUOTA
        except DeadlineExceeded:
            return RewriteSkip.TOO_SLOW
        except UpstreamFailed:
            return RewriteSkip.UNAVAILABLE
        return RewriteSkip.NO_QUOTA  # the lease was lost

    async def _cleared(
        self, context: RequestContext, said: Sequence[Said], max_sensitivity: int
    ) -> tuple[str, ...]:
        """Their questions, bounded. What nobody can say of a document's sensitivity is a no."""
        refs = frozenset[DocumentRef]().union(*(one.documents for one in said))
        standings: Mapping[DocumentRef, DocumentStanding] = {}
        scope = context.scope
        try:
            if refs:
                with stage_time(context.deadline, "catalog", self._caps.catalog_ms):
                    standings = await self._standings.standings(scope.tenant, scope.kb_id, tuple(refs))
        except (CatalogUnavailable, DeadlineExceeded):
            return ()
        allowed = {ref for ref, standing in standings.items() if standing.sensitivity <= max_sensitivity}
        # one that no document answers rests on nothing that could be above the clearance, or on all of it
        cleared = takewhile(lambda one: one.documents and one.documents <= allowed, said)
        return tuple(one.question[:_QUESTION_CHARS] for one in islice(cleared, _MOST_QUESTIONS))
