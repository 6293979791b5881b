"""Composition: parts behind their ports -> services and a worker. Opens and starts nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.access.apikey import ApiKeyIssuer
from gateway.access.authorizer import AccessCatalog, Authorizer, CatalogRecheck, PrincipalSource, Recheck
from gateway.access.principal import IdentityVerifier
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.quota import Quota
from gateway.admission.rate import RequestRate
from gateway.admission.share import TenantShares
from gateway.answer.cache import AnswerStore
from gateway.answer.calls.moderation import Moderator
from gateway.answer.conversation import Conversations
from gateway.answer.explaining import Explainer, ReleaseContents
from gateway.answer.lookup import KnowledgeLookup
from gateway.answer.lookup_tool import LookupTool
from gateway.answer.making import AnswerLimits, Making
from gateway.answer.model import AnswerModel
from gateway.answer.neighbours import Neighbours
from gateway.answer.orchestrator import Orchestrator
from gateway.answer.permissions import Permissions
from gateway.answer.reuse.flights import Flights
from gateway.answer.reuse.keepable import Unkept
from gateway.answer.search import PermittedSearch, SearchCaps
from gateway.bootstrap.answers import answer_cache, answer_keys
from gateway.bootstrap.stages import (
    embedders,
    fusion,
    model_calls,
    neighbour_limits,
    rerank_places,
    reranking,
    rewriting,
)
from gateway.bootstrap.works import reclaim_schedule, works_of
from gateway.ingest.building import DocumentParser
from gateway.ingest.governance import MoveStore
from gateway.ingest.housekeeping import Housekeeping
from gateway.ingest.journal import JournalOutbox
from gateway.ingest.objects import ObjectStore
from gateway.ingest.references import ReclaimStore, ReferenceStore, RemainsStore
from gateway.ingest.worker import Worker
from gateway.observe.logging import get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.recorder import TraceRecorder
from gateway.release.catalog import ReleaseCatalog
from gateway.release.model import RetrievalConfig
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.lexicon import Lexicon
from gateway.retrieval.modes import DenseReader, Mode
from gateway.retrieval.rerank import Reranker
from gateway.retrieval.retriever import Retriever
from gateway.retrieval.risk import RiskPolicy
from gateway.retrieval.store import ChunkReader, ChunkWriter
from gateway.settings import Settings
from gateway.stream.acknowledgement import EndedAnswers
from gateway.stream.feed import RevocationFeed
from gateway.stream.hints import ChangeHints
from gateway.stream.orders import OrderBoard, OrderDesk, SharedHints
from gateway.stream.protocol import AnswerStatus
from gateway.stream.registry import SessionRegistry
from gateway.stream.rights import Rights
from gateway.stream.session import CANCEL_REASONS
from gateway.web.readiness import Check, Readiness
from gateway.web.services import KnowledgeCatalog, Services

#: an import waits for its turn, nobody waits for an import
_OFFLINE_WAIT_MS = 60_000
#: that wait to be stored: some megabytes, and some minutes of a busy process
_TRACES = 2000


class Catalog(
    KnowledgeCatalog,
    AccessCatalog,
    ReleaseCatalog,
    MoveStore,
    JournalOutbox,
    RemainsStore,
    ReferenceStore,
    ReclaimStore,
    OrderBoard,
    Lexicon,
    ReleaseContents,
    Protocol,
):
    """Every port of the catalog; one object in production as in tests."""

    async def active_spaces(self) -> frozenset[str]:
        """The ids of the embedding spaces that any active release, of any tenant, needs."""
        ...


class Vectors(ChunkReader, ChunkWriter, Protocol):
    """Both ports of the vector store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportParts:
    """What an import worker is made of, each part behind its port. ``answers`` is where kept answers are
    erased.
    """

    catalog: Catalog
    objects: ObjectStore
    vectors: Vectors
    offline_embedder: Embedder
    parser: DocumentParser
    config: RetrievalConfig
    answers: AnswerStore | None = None
    checks: Mapping[str, Check]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(ImportParts):
    """What a serving process is made of. ``previous_embedder`` is for releases of the space before.
    ``principals`` and ``recheck`` take an external permission engine; None = the token's own groups and the
    catalog's ACLs. Without ``orders`` this process is the only one. ``tell_searches`` takes whom to tell how
    many questions each call of the vector store brings.
    """

    verifier: IdentityVerifier
    api_keys: ApiKeyIssuer | None = None
    embedder: Embedder
    previous_embedder: Embedder | None = None
    reranker: Reranker | None = None
    vectorstore: DenseReader | None = None
    model: AnswerModel
    second_model: AnswerModel | None = None
    moderator: Moderator | None = None
    quota: Quota
    principals: PrincipalSource | None = None
    recheck: Recheck | None = None
    hints: tuple[ChangeHints, ...] = ()
    orders: OrderBoard | None = None
    tell_searches: Callable[[Callable[[int], None]], None] | None = None
    optional_checks: Mapping[str, Check] = field(default_factory=dict)


def compose(
    settings: Settings,
    parts: Parts,
    worker_name: str = "serve",
    registry: SessionRegistry | None = None,
) -> tuple[Services, Worker]:
    """Puts the parts together; opens and starts nothing. Nothing is answered before the feed runs."""
    metrics = Metrics(
        close_reasons=sorted(CANCEL_REASONS), statuses=map(str, AnswerStatus), unkept=map(str, Unkept)
    )
    offline = _offline(settings)
    worker = compose_worker(settings, parts, worker_name, offline)
    embedding = Bulkhead("embedding", settings.embedding_concurrency, settings.embedding_wait_ms)
    rerank = Bulkhead("rerank", rerank_places(settings, parts), settings.rerank_wait_ms)
    retrieval = Bulkhead("retrieval", settings.retrieval_concurrency, settings.retrieval_wait_ms)
    generation = Bulkhead("generation", settings.generation_concurrency, settings.generation_wait_ms)
    sessions = Bulkhead("sessions", settings.sse_sessions, 0)
    task_streams = Bulkhead("task_streams", settings.task_streams, 0)
    bulkheads = (embedding, retrieval, rerank, generation, sessions, task_streams, offline)
    for bulkhead in bulkheads:
        metrics.watch_bulkhead(bulkhead)
    if parts.tell_searches is not None:
        parts.tell_searches(metrics.search_questions)
    authorizer = Authorizer(parts.catalog, parts.principals)
    recheck = parts.recheck or CatalogRecheck(parts.catalog)
    if registry is None:  # an empty one is false
        registry = SessionRegistry(metrics.active_streams)
    desk = OrderDesk(
        registry,
        worker_name,
        parts.orders,
        hints=parts.hints,
        poll_s=settings.revocation_poll_ms / 1000,
        on_failed_step=_orders_unknown,
    )
    feed = RevocationFeed(
        registry,
        Rights(parts.catalog, parts.catalog, authorizer, parts.recheck, leeway_s=settings.token_leeway_s),
        poll_s=settings.revocation_poll_ms / 1000,
        bound_s=settings.revocation_bound_ms / 1000,
        hints=[SharedHints(hints, desk.wake) for hints in parts.hints],
        on_failure=_rights_unknown,
    )
    search = PermittedSearch(
        Retriever(
            embedders(parts),
            parts.vectors,
            fusion(settings),
            vectorstore=parts.vectorstore,
            embedded=settings.milvus_uri is None,
        ),
        parts.vectors,
        parts.catalog,
        recheck,
        embedding=embedding,
        retrieval=retrieval,
        caps=SearchCaps(
            embed_ms=settings.embed_cap_ms,
            retrieval_ms=settings.retrieval_cap_ms,
            catalog_ms=settings.catalog_cap_ms,
            enough=settings.evidence_passages,
        ),
        reranking=reranking(settings, parts, rerank),
        mode=Mode(settings.retrieval_mode),
    )
    calls = model_calls(settings, parts)
    conversations = Conversations(
        parts.catalog,
        recheck,
        most_turns=0 if settings.rewrite == "off" else settings.conversation_turns,
        hours=settings.conversation_hours,
        catalog_cap_ms=settings.catalog_cap_ms,
        rewriting=rewriting(settings, parts, calls, generation),
    )
    permissions = Permissions(authorizer, search, feed.check_fresh, settings.catalog_cap_ms)
    making = Making(
        search=search,
        neighbours=Neighbours(
            parts.vectors, recheck, retrieval, neighbour_limits(settings), RiskPolicy(settings.risk_policy)
        ),
        calls=calls,
        generation=generation,
        permissions=permissions,
        risk=RiskPolicy(settings.risk_policy),
        refuse_conflicts=settings.on_conflict == "refuse",
        limits=AnswerLimits(
            passages=settings.evidence_passages,
            context_tokens=settings.model_context_tokens,
            output_tokens=settings.max_output_tokens,
        ),
    )
    orchestrator = Orchestrator(
        conversations=conversations,
        authorizer=authorizer,
        releases=parts.catalog,
        permissions=permissions,
        making=making,
        flights=Flights(),
        keys=answer_keys(settings, parts.reranker),
        cache=answer_cache(settings, parts.answers, metrics, worker_name),
        shared=settings.answer_sharing,
        catalog_cap_ms=settings.catalog_cap_ms,
    )
    traces = TraceRecorder(
        parts.catalog, size=_TRACES if settings.trace_days else 0, on_drop=metrics.traces_dropped
    )
    lookup = KnowledgeLookup(
        orchestrator,
        search,
        traces,
        risk=RiskPolicy(settings.risk_policy),
        passages=settings.evidence_passages,
        top_k=settings.top_k,
    )
    explainer = Explainer(
        authorizer=authorizer,
        recheck=recheck,
        releases=parts.catalog,
        contents=parts.catalog,
        traces=parts.catalog,
        recorder=traces,
        check_fresh=feed.check_fresh,
        catalog_cap_ms=settings.catalog_cap_ms,
    )
    services = Services(
        settings=settings,
        verifier=parts.verifier,
        api_keys=parts.api_keys,
        authorizer=authorizer,
        orchestrator=orchestrator,
        search=search,
        lookup=lookup,
        lookup_tool=LookupTool(
            lookup,
            query_max_chars=settings.question_max_chars,
            max_sensitivity=settings.tool_max_sensitivity,
            token_leeway_s=settings.token_leeway_s,
        ),
        explainer=explainer,
        traces=traces,
        catalog=parts.catalog,
        objects=parts.objects,
        registry=registry,
        feed=feed,
        orders=desk,
        ended=EndedAnswers(),
        metrics=metrics,
        rate=RequestRate(settings.requests_per_minute),
        sessions=sessions,
        task_streams=task_streams,
        task_shares=TenantShares("tenant_task_streams", settings.tenant_task_streams),
        bulkheads=bulkheads,
        readiness=Readiness({**parts.checks, "revocations": feed.ready}, optional=parts.optional_checks),
        wake_worker=worker.wake,
    )
    return services, worker


def compose_worker(
    settings: Settings, parts: ImportParts, name: str, offline: Bulkhead | None = None
) -> Worker:
    """An import worker; ``name`` tells it from every other one in the catalog."""
    housekeeping = Housekeeping(
        parts.catalog,
        key_days=settings.idempotency_days,
        task_days=settings.task_days,
        purges=(
            lambda: parts.catalog.purge_traces(settings.trace_days * 86_400.0),
            lambda: parts.catalog.purge_turns(settings.conversation_hours * 3600.0),
        ),
    )
    return Worker(
        name,
        parts.catalog,
        works_of(settings, parts, offline or _offline(settings)),
        lease_s=settings.task_lease_s,
        attempts=settings.task_attempts,
        wait_s=settings.task_wait_s,
        retry_s=settings.task_retry_s,
        retry_max_s=settings.task_retry_max_s,
        chores=[housekeeping.run, reclaim_schedule(settings, parts).run],
    )


def _rights_unknown(code: str) -> None:
    get_logger("revocations").warning("revocations.rights_unknown", code=code)


def _orders_unknown(code: str) -> None:
    get_logger("orders").warning("orders.unknown", code=code)


def _offline(settings: Settings) -> Bulkhead:
    return Bulkhead("offline_embedding", settings.offline_embedding_concurrency, _OFFLINE_WAIT_MS)
