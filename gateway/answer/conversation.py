"""Conversations: the last questions of one person, which a follow-up may lean on. They are never evidence."""

import hashlib
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.access.authorizer import DocumentRef, Recheck
from gateway.access.principal import Principal
from gateway.admission.stage import stage_time
from gateway.answer.evidence import GateCheck, GateDecision, RefusalReason
from gateway.answer.followup import leans, names, stands_alone, told_with
from gateway.answer.question import Question
from gateway.answer.rewriting.rewriting import Rewriting, Rewritten
from gateway.context import RequestContext
from gateway.errors import CatalogUnavailable, DeadlineExceeded, GatewayError
from gateway.observe.hooks import RewriteSkip
from gateway.observe.trace import Trace
from gateway.observe.tracelog import RewrittenBy
from gateway.retrieval.candidate import Candidate
from gateway.stream.protocol import Usage

#: what writing a turn may hold up the end of an answer
_KEEP_MS = 250
#: with less time than this it isn't tried: the whole answer would end with it
_LEAST_LEFT_S = 1.0


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """Whose conversation it is; another person's of the same id is another one."""

    tenant: str
    subject: str
    kb_id: str
    conversation_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One question that stood alone, and the documents its answer could rest on; none, where it was refused.
    ``at`` is in seconds since the epoch.
    """

    turn_id: str
    key: ConversationKey
    at: float
    question: str
    documents: frozenset[DocumentRef]


@dataclass(frozen=True, slots=True)
class Standalone:
    """A question as it is answered, and what a model has used that was to tell it anew."""

    question: Question
    usage: Usage | None = None


class TurnStore(Protocol):
    """Where turns are kept. A method is one transaction, erasing several; each raises CatalogUnavailable."""

    async def turns(self, key: ConversationKey, since: float, limit: int) -> list[Turn]:
        """Newest first; none from before ``since``, in seconds since the epoch."""
        ...

    async def add_turn(self, turn: Turn, most: int) -> None:
        """Of its conversation the newest ``most`` stay. One that rests on a deleted version isn't kept."""
        ...

    async def erase_turns(self, tenant: str, subject: str) -> int:
        """Everything of one person; how many there were."""
        ...

    async def purge_turns(self, older_s: float) -> int:
        """The oldest of those that are older; how many are gone, at most some hundreds a call."""
        ...


class Conversations:
    """Bound to tenant, subject and knowledge base: whatever id a caller sends reaches his own turns only.

    A part that fails costs the follow-up its help, never the question its answer.
    """

    def __init__(
        self,
        turns: TurnStore,
        recheck: Recheck,
        *,
        most_turns: int,
        hours: float,
        catalog_cap_ms: int,
        rewriting: Rewriting | None = None,
    ) -> None:
        """``most_turns`` 0 keeps none. ``rewriting`` goes before the rules."""
        self._turns = turns
        self._recheck = recheck
        self._most = most_turns
        self._kept_s = hours * 3600.0
        self._cap_ms = catalog_cap_ms
        self._rewriting = rewriting

    async def standalone(self, context: RequestContext, trace: Trace, question: Question) -> Standalone:
        """The question told so that it stands alone; itself when it does, or when nothing helps."""
        if question.conversation_id is None or not self._most or not leans(question.text):
            return Standalone(question)
        turns = await self._usable(context, question)
        if not turns or self._rewriting is None:
            return Standalone(_by_rules(question, turns))
        rewritten = await self._rewriting.tell(context, trace, question.text, turns)
        now = await self._usable(context, question)  # it took its time, and rights may have changed
        if rewritten.text and not frozenset(turns) <= frozenset(now):
            rewritten = replace(rewritten, text="", skip=RewriteSkip.RIGHTS_CHANGED)
        trace.hooks.rewrite(rewritten.skip)
        trace.note(rewrite="used" if rewritten.skip is None else rewritten.skip.value)
        told = _by_model(question, rewritten) if rewritten.text else _by_rules(question, now)
        return Standalone(told, rewritten.usage)

    async def keep(
        self, context: RequestContext, question: Question, documents: frozenset[DocumentRef]
    ) -> None:
        """After an answer, or after a refusal with no documents; before its end is told, for the next
        question may come at once, but not in its last moments, and for a quarter of a second at the longest.
        Only what stands alone is kept, for a follow-up leans on nothing else.
        """
        if question.conversation_id is None or not self._most:
            return
        stands = not question.own and stands_alone(question.text)
        if not stands or context.deadline.remaining() < _LEAST_LEFT_S:
            return
        turn = Turn(
            f"turn_{uuid.uuid4().hex}",
            _key(context, question),
            time.time(),
            question.text,
            documents,
        )
        try:
            with stage_time(context.deadline, "catalog", min(self._cap_ms, _KEEP_MS)):
                await self._turns.add_turn(turn, self._most)
        except GatewayError:
            return

    async def _usable(self, context: RequestContext, question: Question) -> tuple[Turn, ...]:
        """The turns whose every document its asker may see now, newest first; none when nobody can say."""
        try:
            with stage_time(context.deadline, "catalog", self._cap_ms):
                since = time.time() - self._kept_s
                turns = await self._turns.turns(_key(context, question), since, self._most)
                refs = frozenset[DocumentRef]().union(*(turn.documents for turn in turns))
                verdicts = await self._recheck.check(context.scope, tuple(refs), time.time())
        except (CatalogUnavailable, DeadlineExceeded):
            return ()
        return tuple(turn for turn in turns if all(verdicts[ref] is None for ref in turn.documents))


def _by_rules(question: Question, turns: Sequence[Turn]) -> Question:
    told = told_with(question.text, turns[0].question) if turns else ""
    if not told:
        return question
    return replace(question, text=told, own=question.text, rewritten_by=RewrittenBy.RULES.value)


def _by_model(question: Question, rewritten: Rewritten) -> Question:
    return replace(question, text=rewritten.text, own=question.text, rewritten_by=RewrittenBy.MODEL.value)


def naming_it(question: Question, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Of a follow-up those that have every word it names itself: words of the question before find passages
    about what was asked before.
    """
    return tuple(c for c in candidates if not question.own or names(c.chunk, question.own))


def judged_by_itself(decision: GateDecision, question: Question, found: int, named: int) -> GateDecision:
    """``named`` of the ``found`` passages have what the follow-up names itself; without any it is refused."""
    if not question.own or not found:
        return decision
    checks = (*decision.checks, GateCheck("follow_up", named > 0))
    reasons = decision.reasons if named else (RefusalReason.KEY_TERMS_NOT_COVERED,)
    return replace(decision, reasons=reasons, checks=checks)


def conversation_name(principal: Principal, conversation_id: str) -> str:
    """What logs and the audit trail call it: an id is written by its sender, and may say anything."""
    parts = [principal.tenant, principal.subject, conversation_id]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _key(context: RequestContext, question: Question) -> ConversationKey:
    principal = context.principal
    conversation_id = question.conversation_id or ""
    return ConversationKey(principal.tenant, principal.subject, context.scope.kb_id, conversation_id)
