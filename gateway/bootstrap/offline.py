"""An offline gateway: twins of every store with the models of the settings, gone with its process."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.bootstrap.composition import Parts, compose
from gateway.bootstrap.identity import local_key
from gateway.bootstrap.parts import PartsOpener
from gateway.bootstrap.quota import local_quota
from gateway.ingest.building import build_document
from gateway.ingest.document import BuiltDocument
from gateway.settings import Settings
from gateway.web.services import Services


@dataclass(frozen=True, slots=True)
class Offline:
    """``sign(tenant=, subject=, groups=, scopes=, ttl_s=)`` gives a token its services believe."""

    services: Services
    sign: Callable[..., str]


class ThreadParser:
    """A DocumentParser for documents that are trusted: in a thread, without a child's limits."""

    async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
        return await to_thread.run_sync(build_document, source, media_type, content)


@asynccontextmanager
async def open_offline(settings: Settings) -> AsyncIterator[Offline]:
    """Everything but the stores is as it is embedded; nothing of it is written down.

    Raises ConfigurationError, EmbedderUnavailable.
    """
    with TemporaryDirectory(prefix="qa-gateway-offline-") as folder:
        settings = settings.model_copy(update={"data_dir": Path(folder)})
        async with AsyncExitStack() as stack:
            opener, key = PartsOpener(settings, stack), local_key(settings)
            embedder = await opener.models.embedder()
            shared = embedder is opener.models.reader  # it reads questions as it reads passages
            parts = Parts(
                catalog=MemoryCatalog(),
                objects=MemoryObjects(),
                vectors=MemoryVectors(),
                offline_embedder=embedder if shared else opener.models.offline_embedder(),
                parser=ThreadParser(),
                config=opener.config(embedder.space),
                checks={},
                verifier=key.verifier(settings.token_audience, settings.token_leeway_s),
                embedder=embedder,
                reranker=opener.models.reranker(embedder),
                model=opener.models.model(embedder),
                quota=local_quota(settings),
            )
            services, worker = compose(settings, parts, "offline")
            async with anyio.create_task_group() as tasks:
                await tasks.start(services.feed.run)
                tasks.start_soon(worker.run)
                try:
                    yield Offline(services, functools.partial(key.sign, audience=settings.token_audience))
                finally:
                    tasks.cancel_scope.cancel()
