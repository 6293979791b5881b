"""The embedded side of every port, over one data folder, and the services on top of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from gateway.adapters.build_child import ChildParser
from gateway.adapters.embedded import CALIBRATION, BundledEmbedder
from gateway.adapters.embedding_child import ChildEmbedder
from gateway.adapters.extractive import ExtractiveModel
from gateway.adapters.milvus import MilvusStore
from gateway.adapters.milvus_lite import LiteChild
from gateway.adapters.objects import open_objects
from gateway.adapters.sql.catalog import open_catalog
from gateway.adapters.tokens import LocalKey
from gateway.admission.quota import LocalQuota
from gateway.answer.model import AnswerModel
from gateway.bootstrap.composition import Parts, compose
from gateway.bootstrap.identity import made_data_dir
from gateway.context import Deadline
from gateway.errors import ConfigurationError, GatewayError
from gateway.settings import Settings
from gateway.web.readiness import Check
from gateway.web.services import Services

_STORE_PING_MS = 2000


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


def refuse_unfit(settings: Settings) -> None:
    """Production never runs on the embedded parts. Raises ConfigurationError."""
    if settings.env == "production":
        raise ConfigurationError(
            "production_needs_servers",
            "production refuses the local signing key, SQLite, Milvus Lite and the in-process quota; "
            "this version has only those, so it serves development",
        )


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
            quota=LocalQuota(settings.quota_concurrency),
            checks={
                "catalog": _answers(catalog.ping),
                "vector_store": _answers(lambda: store.ping(Deadline.after(_STORE_PING_MS))),
                "model": model_ready,
            },
        )


def _model(settings: Settings, embedder: BundledEmbedder, stack: AsyncExitStack) -> tuple[AnswerModel, Check]:
    if settings.model_base_url is None:
        return ExtractiveModel(embedder), _always
    from gateway.adapters.openai import OpenAIModel  # the SDK takes a second to load: only who uses it waits

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
