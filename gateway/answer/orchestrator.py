"""The whole path of one question, from a verified principal to the last event."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gateway.access.authorizer import Authorizer, DocumentRef
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.stage import stage_time
from gateway.answer.budget import fit_evidence, tokens_left
from gateway.answer.calling import ModelCalls
from gateway.answer.citing import Citing
from gateway.answer.conversation import Conversations, judged_by_itself, naming_it
from gateway.answer.evidence import Evidence, RefusalReason, check_calibrated, decide
from gateway.answer.findings import findings_of
from gateway.answer.generation import Generated
from gateway.answer.neighbours import Neighbours
from gateway.answer.prompt import Prompt, build_prompt
from gateway.answer.question import Question
from gateway.answer.report import done_of, meta_of, refusal_of
from gateway.answer.search import PermittedSearch, SearchResult
from gateway.context import Deadline, RequestContext
from gateway.errors import PermissionsChanged, ReleaseUnresolved
from gateway.observe.hooks import Stage
from gateway.observe.trace import Trace
from gateway.release.catalog import ReleaseCatalog
from gateway.retrieval.risk import RiskPolicy
from gateway.stream.session import Session


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Sizes of an answer: passages, tokens of the model's context and of its output."""

    passages: int
    context_tokens: int
    output_tokens: int
    catalog_cap_ms: int


@dataclass(frozen=True, slots=True)
class _Found:
    """What an answer needs of its search: evidence that fits, or why there is none.

    All that was found weighs ten times as much, and an answer may stream for minutes.
    """

    evidence: tuple[Evidence, ...]
    reasons: tuple[RefusalReason, ...]
    degraded: bool


class Orchestrator:
    """Every step in the order of the contract. Errors are raised; the caller ends the session."""

    def __init__(
        self,
        *,
        authorizer: Authorizer,
        releases: ReleaseCatalog,
        search: PermittedSearch,
        neighbours: Neighbours,
        conversations: Conversations,
        calls: ModelCalls,
        generation: Bulkhead,
        limits: AnswerLimits,
        check_fresh: Callable[[], None],
        risk: RiskPolicy = RiskPolicy.MARK,
    ) -> None:
        """``check_fresh`` raises when revocations can't be followed."""
        self._authorizer = authorizer
        self._releases = releases
        self._search = search
        self._neighbours = neighbours
        self._conversations = conversations
        self._calls = calls
        self._citing = Citing()
        self._generation = generation
        self._limits = limits
        self._check_fresh = check_fresh
        self._risk = risk

    async def bind(
        self, principal: Principal, knowledge_base: str | None, trace: Trace, deadline: Deadline
    ) -> RequestContext:
        """Steps 4-6: what the caller may see, of which release. Fails closed."""
        self._check_fresh()
        with stage_time(deadline, "catalog", self._limits.catalog_cap_ms):
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
        """Permissions are read fresh once more after a search: nothing leaves on an old word.

        The scope as it is now. Raises what ``authorize`` raises, and PermissionsChanged when a document is
        no longer the caller's.
        """
        self._check_fresh()
        with stage_time(context.deadline, "catalog", self._limits.catalog_cap_ms):
            scope = await self._authorizer.still_holds(context.principal, context.scope)
        fresh = replace(context, scope=scope)
        if scope is not context.scope and not await self._search.still_permitted(fresh, refs):
            raise PermissionsChanged()
        return scope

    async def answer(
        self, session: Session, trace: Trace, principal: Principal, question: Question, deadline: Deadline
    ) -> None:
        """Steps 4-16. Before ``session.open`` an error is a status, after it an event."""
        context = await self.bind(principal, question.knowledge_base, trace, deadline)
        session.scope = context.scope
        check_calibrated(context.release.config)  # no model is asked for what no gate can judge
        calls = self._calls.of(context.release)
        calls.check()
        ticket = self._generation.announce(deadline)
        session.hold(ticket)
        question = await self._conversations.standalone(context, question)
        found = await self._find(session, trace, context, question, calls.max_sensitivity)
        if found.reasons:
            await self._conversations.keep(context, question, ())
            session.scope = await self.verify(context, session.documents)  # a reranker takes its time
            session.open(meta_of(context, calls.name, (), self._risk, trace.searched))
            session.complete(refusal_of(found.reasons, trace))
            return
        if not question.own:  # what stands beside a follow-up's passage may be about the question before
            found = await self._completed(session, trace, context, question, found)
        place = await ticket.acquire(deadline)
        session.hold(place)
        attempt = await calls.reserve(session, context, found.evidence)
        session.scope = await self.verify(context, session.documents)
        name = attempt.endpoint.model.name
        session.open(meta_of(context, name, found.evidence, self._risk, trace.searched))
        with trace.stage(Stage.GENERATE):
            prompt = self._prompt(question, found.evidence)
            generated = await calls.generate(attempt, session, trace, context, prompt)
        place.release()
        await self._conversations.keep(context, question, found.evidence)
        await self._finish(session, trace, replace(generated, degraded=found.degraded), found.evidence)

    async def examine(
        self, session: Session, trace: Trace, principal: Principal, question: Question, deadline: Deadline
    ) -> None:
        """Steps 4-13 without an answer: what was found, and why it would be refused, is on the trace."""
        context = await self.bind(principal, question.knowledge_base, trace, deadline)
        session.scope = context.scope
        max_sensitivity = self._calls.of(context.release).max_sensitivity
        found = await self._find(session, trace, context, question, max_sensitivity)
        session.scope = await self.verify(context, session.documents)
        trace.reasons = tuple(reason.value for reason in found.reasons)

    async def _find(
        self,
        session: Session,
        trace: Trace,
        context: RequestContext,
        question: Question,
        max_sensitivity: int,
    ) -> _Found:
        """Searches and judges what came; the candidates that don't become evidence end here."""
        trace.question, trace.searched = question.own or question.text, question.text if question.own else ""
        result = await self._search.run(context, trace, question.text)
        session.documents = result.refs
        session.scope = await self.verify(context, result.refs)
        result = self._usable(result, trace, max_sensitivity)
        result = await self._search.rerank(context, trace, result)
        named = replace(result, candidates=naming_it(question, result.candidates))
        evidence = named.evidence(self._limits.passages)
        with trace.stage(Stage.GATE):
            decision = decide(context.release.config, named.signals(evidence))
            decision = judged_by_itself(decision, question, len(result.candidates), len(evidence))
            trace.findings = findings_of(result, evidence, decision)
            reasons = decision.reasons
            fitting = () if reasons else self._fit(evidence, question)
        reasons = reasons if reasons or fitting else (RefusalReason.BUDGET_TOO_SMALL,)
        return _Found(fitting, reasons, result.degraded)

    def _usable(self, result: SearchResult, trace: Trace, max_sensitivity: int) -> SearchResult:
        """The passages that the answering endpoint is cleared for and that no risk keeps back."""
        safe = [c for c in result.candidates if not self._risk.withholds(c.chunk.risk)]
        trace.note(withheld=len(result.candidates) - len(safe))
        cleared = tuple(c for c in safe if c.chunk.sensitivity <= max_sensitivity)
        return replace(result, candidates=cleared)

    async def _completed(
        self, session: Session, trace: Trace, context: RequestContext, question: Question, found: _Found
    ) -> _Found:
        """With the neighbours of the evidence, by the permissions of the last look."""
        whole = await self._neighbours.join(
            replace(context, scope=session.scope or context.scope),
            trace,
            found.evidence,
            max_sensitivity=self._calls.of(context.release).max_sensitivity,
            tokens=tokens_left(
                found.evidence,
                question.text,
                context_tokens=self._limits.context_tokens,
                output_tokens=self._output_tokens(question),
            ),
        )
        return replace(found, evidence=whole.evidence, degraded=found.degraded or whole.skipped)

    def _fit(self, evidence: tuple[Evidence, ...], question: Question) -> tuple[Evidence, ...]:
        return fit_evidence(
            evidence,
            question.text,
            context_tokens=self._limits.context_tokens,
            output_tokens=self._output_tokens(question),
        )

    def _output_tokens(self, question: Question) -> int:
        return min(question.max_output_tokens or self._limits.output_tokens, self._limits.output_tokens)

    def _prompt(self, question: Question, evidence: tuple[Evidence, ...]) -> Prompt:
        return build_prompt(
            question.text,
            evidence,
            language=question.answer_language,
            max_output_tokens=self._output_tokens(question),
        )

    async def _finish(
        self, session: Session, trace: Trace, generated: Generated, evidence: tuple[Evidence, ...]
    ) -> None:
        if generated.no_support:
            session.complete(refusal_of((RefusalReason.MODEL_FOUND_NO_SUPPORT,), trace, generated.usage))
        else:
            cited = await self._citing.citations(generated, evidence)
            trace.note(uncited=cited.uncited)
            session.complete(done_of(generated, cited.sources, trace))
