"""Bootstrap: Settings -> Services. The only module that knows the adapters."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio

from gateway.access.authorizer import AccessCatalog, Authorizer, CatalogRecheck
from gateway.access.principal import IdentityVerifier
from gateway.adapters.build_child import ChildParser
from gateway.adapters.embedded import CALIBRATION, BundledEmbedder
from gateway.adapters.embedding_child import ChildEmbedder
from gateway.adapters.extractive import ExtractiveModel
from gateway.adapters.milvus import MilvusStore
from gateway.adapters.milvus_lite import LiteChild
from gateway.adapters.objects import open_objects
from gateway.adapters.openai import OpenAIModel
from gateway.adapters.sql.catalog import open_catalog
from gateway.adapters.tokens import LocalKey
from gateway.admission.bulkhead import Bulkhead
from gateway.admission.quota import LocalQuota
from gateway.admission.rate import RequestRate
from gateway.answer.model import AnswerModel
from gateway.answer.orchestrator import AnswerLimits, Orchestrator
from gateway.answer.search import PermittedSearch, SearchCaps
from gateway.context import Deadline
from gateway.errors import ConfigurationError, GatewayError
from gateway.ingest.catalog import DocumentParser, ObjectStore
from gateway.ingest.pipeline import ImportPipeline
from gateway.ingest.releaser import Releaser
from gateway.ingest.validator import Validator
from gateway.ingest.worker import Worker
from gateway.observe.metrics import Metrics
from gateway.release.catalog import ReleaseCatalog
from gateway.release.model import RetrievalConfig
from gateway.retrieval.embedding import Embedder
from gateway.retrieval.lexicon import Lexicon
from gateway.retrieval.retriever import FusionSettings, Retriever
from gateway.retrieval.store import ChunkReader, ChunkWriter
from gateway.settings import Settings
from gateway.stream.protocol import AnswerStatus
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import CANCEL_REASONS
from gateway.web.services import Check, KnowledgeCatalog, Services

_STORE_PING_MS = 2000
#: an import waits for its turn, nobody waits for an import
_OFFLINE_WAIT_MS = 60_000


class Catalog(KnowledgeCatalog, AccessCatalog, ReleaseCatalog, Lexicon, Protocol):
    """Every port of the catalog; one object in production as in tests."""


class Vectors(ChunkReader, ChunkWriter, Protocol):
    """Both ports of the vector store."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts a gateway is composed of, each behind its port."""

    verifier: IdentityVerifier
    catalog: Catalog
    objects: ObjectStore
    vectors: Vectors
    embedder: Embedder
    offline_embedder: Embedder
    parser: DocumentParser
    model: AnswerModel
    config: RetrievalConfig
    checks: Mapping[str, Check]


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Everything one process serves with, opened in order and closed in reverse: the Lite child last.

    Raises ConfigurationError when the process must not start like this, Unavailable when a part
    can't be opened.
    """
    refuse_unfit(settings)
    async with embedded_parts(settings) as parts:
        services, worker = compose(settings, parts)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            try:
                yield services
            finally:
                tasks.cancel_scope.cancel()


@asynccontextmanager
async def embedded_parts(settings: Settings) -> AsyncIterator[Parts]:
    """The embedded side of every port, over one data folder."""
    data_dir = made_data_dir(settings.data_dir)
    key = LocalKey.load(data_dir)
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(open_catalog(data_dir / "catalog.db"))
        lite = LiteChild(data_dir / "milvus")
        stack.push_async_callback(lite.aclose)
        await lite.start()
        store = MilvusStore(lite.endpoint)
        stack.push_async_callback(store.aclose)
        parser = ChildParser(cap_s=settings.parse_cap_s, max_bytes=settings.document_max_bytes)
        stack.push_async_callback(parser.aclose)
        offline_embedder = ChildEmbedder()
        stack.push_async_callback(offline_embedder.aclose)
        embedder = await BundledEmbedder.load()
        model, model_ready = _model(settings, embedder, stack)
        yield Parts(
            verifier=key.verifier(settings.token_audience, settings.token_leeway_s),
            catalog=catalog,
            objects=open_objects(data_dir / "objects"),
            vectors=store,
            embedder=embedder,
            offline_embedder=offline_embedder,
            parser=parser,
            model=model,
            config=CALIBRATION,
            checks={
                "catalog": _answers(catalog.ping),
                "vector_store": _answers(lambda: store.ping(Deadline.after(_STORE_PING_MS))),
                "model": model_ready,
            },
        )


def refuse_unfit(settings: Settings) -> None:
    """Production never runs on the embedded parts. Raises ConfigurationError."""
    if settings.env == "production":
        raise ConfigurationError(
            "production_needs_servers",
            "production refuses the local signing key, SQLite, Milvus Lite and the in-process quota; "
            "this version has only those, so it serves development",
        )


def made_data_dir(path: Path) -> Path:
    """The folder, readable by its owner alone. Raises ConfigurationError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError("data_dir_unusable", f"{path} can't be used: {error.strerror}") from error
    return path.resolve()


def local_key(settings: Settings) -> LocalKey:
    """The development signing key; touches nothing but its file."""
    return LocalKey.load(made_data_dir(settings.data_dir))


def _model(settings: Settings, embedder: BundledEmbedder, stack: AsyncExitStack) -> tuple[AnswerModel, Check]:
    if settings.model_base_url is None:
        return ExtractiveModel(embedder), _always
    key = settings.model_api_key
    model = OpenAIModel(
        settings.model_base_url,
        settings.model_name,
        None if key is None else key.get_secret_value(),
        max_sensitivity=settings.model_max_sensitivity,
        connect_cap_ms=settings.connect_cap_ms,
        first_token_cap_ms=settings.first_token_cap_ms,
        idle_cap_ms=settings.idle_cap_ms,
    )
    stack.push_async_callback(model.aclose)
    return model, model.ping


def compose(settings: Settings, parts: Parts) -> tuple[Services, Worker]:
    """Puts the parts together; opens and starts nothing."""
    metrics = Metrics(close_reasons=sorted(CANCEL_REASONS), statuses=map(str, AnswerStatus))
    offline = Bulkhead("offline_embedding", settings.offline_embedding_concurrency, _OFFLINE_WAIT_MS)
    worker = _worker(settings, parts, offline)
    embedding = Bulkhead("embedding", settings.embedding_concurrency, settings.embedding_wait_ms)
    retrieval = Bulkhead("retrieval", settings.retrieval_concurrency, settings.retrieval_wait_ms)
    generation = Bulkhead("generation", settings.generation_concurrency, settings.generation_wait_ms)
    sessions = Bulkhead("sessions", settings.sse_sessions, 0)
    bulkheads = (embedding, retrieval, generation, sessions, offline)
    for bulkhead in bulkheads:
        metrics.watch_bulkhead(bulkhead)
    authorizer = Authorizer(parts.catalog)
    search = PermittedSearch(
        Retriever(parts.embedder, parts.vectors, _fusion(settings)),
        parts.vectors,
        parts.catalog,
        CatalogRecheck(parts.catalog),
        embedding=embedding,
        retrieval=retrieval,
        caps=SearchCaps(settings.embed_cap_ms, settings.retrieval_cap_ms, settings.catalog_cap_ms),
    )
    orchestrator = Orchestrator(
        authorizer=authorizer,
        releases=parts.catalog,
        search=search,
        model=parts.model,
        generation=generation,
        quota=LocalQuota(settings.generation_concurrency),
        limits=AnswerLimits(
            passages=settings.evidence_passages,
            context_tokens=settings.model_context_tokens,
            output_tokens=settings.max_output_tokens,
            catalog_cap_ms=settings.catalog_cap_ms,
        ),
    )
    services = Services(
        settings=settings,
        verifier=parts.verifier,
        authorizer=authorizer,
        orchestrator=orchestrator,
        search=search,
        catalog=parts.catalog,
        objects=parts.objects,
        registry=SessionRegistry(metrics.active_streams),
        metrics=metrics,
        rate=RequestRate(settings.requests_per_minute),
        sessions=sessions,
        bulkheads=bulkheads,
        checks=parts.checks,
        wake_worker=worker.wake,
    )
    return services, worker


def _worker(settings: Settings, parts: Parts, offline: Bulkhead) -> Worker:
    catalog, vectors = parts.catalog, parts.vectors
    releaser = Releaser(
        catalog,
        catalog,
        catalog,
        parts.objects,
        vectors,
        Validator(vectors, vectors),
        parts.offline_embedder.space,
        parts.config,
    )
    pipeline = ImportPipeline(catalog, catalog, parts.objects, parts.parser, parts.offline_embedder, offline)
    return Worker(
        "serve",
        catalog,
        pipeline,
        releaser,
        lease_s=settings.task_lease_s,
        attempts=settings.task_attempts,
    )


def _fusion(settings: Settings) -> FusionSettings:
    return FusionSettings(
        depth=settings.candidates,
        k=settings.rrf_k,
        dense_weight=settings.rrf_dense_weight,
        lexical_weight=settings.rrf_lexical_weight,
    )


def _answers(ping: Callable[[], Awaitable[None]]) -> Check:
    async def check() -> bool:
        try:
            await ping()
        except GatewayError:
            return False
        return True

    return check


async def _always() -> bool:
    return True
