"""The making of an answer: steps 8-15 of a question, for all members of its flight."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from gateway.access.authorizer import DocumentRef, DropReason
from gateway.admission.bulkhead import Bulkhead
from gateway.answer.budget import fit_evidence, tokens_left
from gateway.answer.calls.calling import ModelCalls
from gateway.answer.calls.generation import Generated
from gateway.answer.conflict import refused_in_conflict
from gateway.answer.conversation import judged_by_itself, naming_it
from gateway.answer.evidence import Evidence, RefusalReason, decide
from gateway.answer.findings import findings_of
from gateway.answer.neighbours import Neighbours
from gateway.answer.outcome import Ending, Opening
from gateway.answer.permissions import Permissions
from gateway.answer.prompt import Prompt, build_prompt
from gateway.answer.question import Question
from gateway.answer.report import NO_USAGE, searched_of, sources_of
from gateway.answer.reuse.flight import Flight
from gateway.answer.reuse.keepable import why_found_unkept, why_unkept
from gateway.answer.search import PermittedSearch, SearchResult
from gateway.answer.support.citing import Citing
from gateway.context import RequestContext
from gateway.observe.hooks import Made, Stage
from gateway.observe.trace import Trace
from gateway.release.model import RetrievalRelease
from gateway.retrieval.risk import RiskPolicy
from gateway.stream.session import Session

#: these are lifted, and reinstated, without a new release
_COMES_BACK = (DropReason.REVOKED, DropReason.WITHDRAWN)
#: of these the catalog, or an engine beside it, may say something else to somebody else
_OF_THE_ASKER = (DropReason.ACL, DropReason.UNKNOWN, DropReason.EXPIRED, DropReason.NOT_YET_VALID)


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Sizes of an answer: passages, tokens of the model's context and of its output."""

    passages: int
    context_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Found:
    """What an answer needs of its search: evidence that fits, or why there is none.

    All that was found weighs ten times as much, and an answer may stream for minutes. ``documents`` are those
    of every permitted passage, evidence or not: ranks and counts tell of all of them. ``shared`` says that it
    would have been found for everybody with the same scope who may see them; ``complete`` that nothing was
    left out which may come back without a new release.
    """

    evidence: tuple[Evidence, ...]
    documents: frozenset[DocumentRef]
    reasons: tuple[RefusalReason, ...]
    degraded: bool
    shared: bool
    complete: bool

    @property
    def unkept(self) -> str:
        """Why nothing that rests on it is kept, '' for nothing."""
        return why_found_unkept(shared=self.shared, complete=self.complete, degraded=self.degraded)


class Making:
    """Errors are raised; whoever reads ends his own session with them."""

    def __init__(
        self,
        *,
        search: PermittedSearch,
        neighbours: Neighbours,
        calls: ModelCalls,
        generation: Bulkhead,
        limits: AnswerLimits,
        permissions: Permissions,
        risk: RiskPolicy = RiskPolicy.MARK,
        refuse_conflicts: bool = False,
    ) -> None:
        self._search = search
        self._neighbours = neighbours
        self._calls = calls
        self._citing = Citing()
        self._generation = generation
        self._limits = limits
        self._permissions = permissions
        self._risk = risk
        self._refuse_conflicts = refuse_conflicts

    async def make(
        self, flight: Flight, leader: Session, context: RequestContext, question: Question, unkept: str = ""
    ) -> None:
        """Ends with the flight's landing. What is found for the leader enters his session. ``unkept``: why
        the answer isn't kept, whatever it will be.
        """
        trace = flight.trace
        calls = self._calls.of(context.release)
        calls.check()
        ticket = self._generation.announce(context.deadline)
        flight.hold(ticket)
        found = await self.find(leader, trace, context, question)
        if found.reasons:
            trace.hooks.making(Made.REFUSAL)
            ticket.release()
            flight.open(Opening(calls.name, (), found.documents, found.shared))
            flight.land(self._refusal(found, trace, context, unkept))
            return
        if not question.own:  # what stands beside a follow-up's passage may be about the question before
            found = await self._completed(leader, trace, context, question, found)
        place = await ticket.acquire(context.deadline)
        flight.hold(place)
        attempt = await calls.reserve(flight, context, found.evidence)
        trace.hooks.making(Made.GENERATION)
        sources = sources_of(found.evidence, self._risk)
        documents = found.documents | documents_of(found.evidence)
        flight.open(Opening(attempt.endpoint.model.name, sources, documents, found.shared))
        await flight.wanted()
        with trace.stage(Stage.GENERATE):
            prompt = self._prompt(question, found.evidence)
            generated = await calls.generate(attempt, flight, trace, context, prompt)
        place.release()
        flight.land(await self._ending(trace, context, generated, found, unkept))

    async def find(self, leader: Session, trace: Trace, context: RequestContext, question: Question) -> Found:
        """Searches and judges what came; the candidates that don't become evidence end here."""
        result = await self._search.run(context, trace, question.text)
        documents = leader.documents = result.refs
        leader.scope = await self._permissions.verify(context, documents)
        result = result.readable(trace, self._risk, self._calls.of(context.release).max_sensitivity)
        result = await self._search.rerank(context, trace, result)
        named = replace(result, candidates=naming_it(question, result.candidates))
        evidence = named.evidence(self._limits.passages)
        with trace.stage(Stage.GATE):
            judging, deadline = self._search.judging, context.deadline
            signals = await judging.run(deadline, lambda: named.signals(evidence))
            decision = decide(context.release.config, signals)
            decision = judged_by_itself(decision, question, len(result.candidates), len(evidence))
            if self._refuse_conflicts:
                decision = await refused_in_conflict(decision, question.text, evidence)
            findings = partial(findings_of, result, evidence, decision)
            # only for a refusal passages are read once more: an answer doesn't wait for another turn
            trace.findings = findings() if decision.sufficient else await judging.run(deadline, findings)
            reasons = decision.reasons
            fitting = () if reasons else self._fit(evidence, question)
        reasons = reasons if reasons or fitting else (RefusalReason.BUDGET_TOO_SMALL,)
        return Found(
            fitting,
            documents,
            reasons,
            degraded=result.degraded,
            shared=not _dropped(result, _OF_THE_ASKER),
            complete=not _dropped(result, _COMES_BACK),
        )

    def model(self, release: RetrievalRelease) -> str:
        """The first choice for answers from it."""
        return self._calls.of(release).name

    def output_tokens(self, question: Question) -> int:
        """The most its answer may have."""
        return min(question.max_output_tokens or self._limits.output_tokens, self._limits.output_tokens)

    async def _completed(
        self, leader: Session, trace: Trace, context: RequestContext, question: Question, found: Found
    ) -> Found:
        """With the neighbours of the evidence, by the permissions of the last look."""
        whole = await self._neighbours.join(
            replace(context, scope=leader.scope or context.scope),
            trace,
            found.evidence,
            max_sensitivity=self._calls.of(context.release).max_sensitivity,
            tokens=tokens_left(
                found.evidence,
                question.text,
                context_tokens=self._limits.context_tokens,
                output_tokens=self.output_tokens(question),
            ),
        )
        return replace(found, evidence=whole.evidence, degraded=found.degraded or whole.skipped)

    def _fit(self, evidence: tuple[Evidence, ...], question: Question) -> tuple[Evidence, ...]:
        return fit_evidence(
            evidence,
            question.text,
            context_tokens=self._limits.context_tokens,
            output_tokens=self.output_tokens(question),
        )

    def _prompt(self, question: Question, evidence: tuple[Evidence, ...]) -> Prompt:
        return build_prompt(
            question.text,
            evidence,
            language=question.answer_language,
            max_output_tokens=self.output_tokens(question),
        )

    async def _ending(
        self, trace: Trace, context: RequestContext, generated: Generated, found: Found, unkept: str
    ) -> Ending:
        unkept = unkept or found.unkept or why_unkept(generated)
        if generated.no_support:
            reasons = (RefusalReason.MODEL_FOUND_NO_SUPPORT.value,)
            return Ending(reasons, (), generated.usage, searched_of(context, trace), unkept)
        cited = await self._citing.citations(generated, found.evidence)
        trace.note(uncited=cited.uncited)
        trace.note(unknown_citations=generated.unknown_citations, finish=generated.finish_reason)
        return Ending((), cited.sources, generated.usage, unkept=unkept)

    def _refusal(self, found: Found, trace: Trace, context: RequestContext, unkept: str) -> Ending:
        reasons = tuple(reason.value for reason in found.reasons)
        return Ending(reasons, (), NO_USAGE, searched_of(context, trace), unkept or found.unkept)


def _dropped(result: SearchResult, reasons: Iterable[DropReason]) -> bool:
    """Whether the re-check took out a candidate for one of them."""
    return any(result.dropped[reason.value] for reason in reasons)


def documents_of(evidence: tuple[Evidence, ...]) -> frozenset[DocumentRef]:
    """Of every passage and of every neighbour of one."""
    parts = (part for item in evidence for part in item.parts)
    return frozenset(DocumentRef(part.document_id, part.document_version) for part in parts)
