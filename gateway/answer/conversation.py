"""Conversations: the last questions of one person, which a follow-up may lean on. They are never evidence."""

import hashlib
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from gateway.access.authorizer import DocumentRef, Recheck
from gateway.admission.stage import stage_time
from gateway.answer.evidence import Evidence, GateCheck, GateDecision, RefusalReason
from gateway.answer.followup import leans, names_only, standing_alone
from gateway.answer.question import Question
from gateway.context import RequestContext
from gateway.errors import CatalogUnavailable, DeadlineExceeded


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """Whose conversation it is; another person's of the same id is another one."""

    tenant: str
    subject: str
    kb_id: str
    conversation_id: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered question, as it was searched, and the documents its answer could rest on. ``at`` is in
    seconds since the epoch.
    """

    turn_id: str
    key: ConversationKey
    at: float
    question: str
    documents: frozenset[DocumentRef]


class TurnStore(Protocol):
    """Where turns are kept. Each method is one transaction; each raises CatalogUnavailable."""

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
        self, turns: TurnStore, recheck: Recheck, *, most_turns: int, hours: float, catalog_cap_ms: int
    ) -> None:
        """``most_turns`` 0 keeps none."""
        self._turns = turns
        self._recheck = recheck
        self._most = most_turns
        self._kept_s = hours * 3600.0
        self._cap_ms = catalog_cap_ms

    async def standalone(self, context: RequestContext, question: Question) -> Question:
        """The question told so that it stands alone; itself when it does, or when nothing helps."""
        if question.conversation_id is None or not self._most or not leans(question.text):
            return question
        try:
            with stage_time(context.deadline, "catalog", self._cap_ms):
                since = time.time() - self._kept_s
                turns = await self._turns.turns(_key(context, question), since, self._most)
                last = await self._first_permitted(context, turns)
        except (CatalogUnavailable, DeadlineExceeded):
            return question
        told = "" if last is None else standing_alone(question.text, last.question)
        return replace(question, text=told, own=question.text) if told else question

    async def keep(self, context: RequestContext, question: Question, evidence: Sequence[Evidence]) -> None:
        """After an answer, before its end is told: the next question may come at once. What leant on nothing
        isn't kept, for nothing could lean on it.
        """
        says_enough = question.own or not leans(question.text)
        if question.conversation_id is None or not self._most or not says_enough:
            return
        parts = [part for item in evidence for part in item.parts]
        turn = Turn(
            f"turn_{uuid.uuid4().hex}",
            _key(context, question),
            time.time(),
            question.text,
            frozenset(DocumentRef(part.document_id, part.document_version) for part in parts),
        )
        try:
            with stage_time(context.deadline, "catalog", self._cap_ms):
                await self._turns.add_turn(turn, self._most)
        except (CatalogUnavailable, DeadlineExceeded):
            return

    async def _first_permitted(self, context: RequestContext, turns: Sequence[Turn]) -> Turn | None:
        """The newest turn whose every document its asker may see now."""
        refs = frozenset[DocumentRef]().union(*(turn.documents for turn in turns))
        verdicts = await self._recheck.check(context.scope, tuple(refs), time.time())
        return next((turn for turn in turns if all(verdicts[ref] is None for ref in turn.documents)), None)


def judged_by_itself(
    decision: GateDecision, question: Question, evidence: Sequence[Evidence]
) -> GateDecision:
    """A follow-up is refused when no passage has what it names itself, whatever the words of the question
    before it have found.
    """
    if not question.own:
        return decision
    found = names_only(question.own, [item.chunk for item in evidence])
    checks = (*decision.checks, GateCheck("follow_up", found))
    reasons = decision.reasons if found or decision.reasons else (RefusalReason.KEY_TERMS_NOT_COVERED,)
    return replace(decision, reasons=reasons, checks=checks)


def conversation_digest(question: Question) -> str:
    """Names what an answer depends on beyond its own words, for its cache key; '' for nothing."""
    if not question.own:
        return ""
    return hashlib.sha256(question.text.encode()).hexdigest()[:32]


def _key(context: RequestContext, question: Question) -> ConversationKey:
    principal = context.principal
    conversation_id = question.conversation_id or ""
    return ConversationKey(principal.tenant, principal.subject, context.scope.kb_id, conversation_id)
