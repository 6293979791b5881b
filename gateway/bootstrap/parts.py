"""Parts: for each port its embedded side or its production side, as the settings say.

What only one side needs is imported where that side is opened: those libraries take seconds to load.
"""

import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio.to_thread
from pydantic import SecretStr

from gateway.access.apikey import ApiKeyStore
from gateway.access.principal import IdentityVerifier
from gateway.adapters.embedded.calibration import calibration_of
from gateway.adapters.identity.api_keys import ApiKeyVerifier, Pepper, Verifiers
from gateway.adapters.langchain.reader import LangChainReader
from gateway.adapters.langchain.vectors import installed, load
from gateway.adapters.milvus.client import Endpoint
from gateway.adapters.milvus.layout import server_layout
from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.objects import StoredObjects, open_objects
from gateway.adapters.room import Room
from gateway.adapters.sql.catalog import SqlCatalog, open_catalog, open_postgres
from gateway.admission.quota import Quota
from gateway.bootstrap.fitness import refuse_powerful
from gateway.bootstrap.identity import local_key, made_data_dir
from gateway.bootstrap.models import ModelsOpener, plain
from gateway.bootstrap.quota import local_quota, quota_name, quota_terms
from gateway.bootstrap.waiting import patiently
from gateway.context import Deadline
from gateway.errors import (
    CatalogUnavailable,
    ConfigurationError,
    EmbeddingSpaceMismatch,
    ObjectStoreUnavailable,
    QuotaUnavailable,
    Unavailable,
    VectorStoreUnavailable,
)
from gateway.release.model import EmbeddingSpace, RetrievalConfig
from gateway.settings import Settings
from gateway.stream.hints import ChangeHints
from gateway.web.readiness import Check

if TYPE_CHECKING:
    from gateway.adapters.redis.quota import RedisQuota

T = TypeVar("T")

_PING_MS = 1500
#: the first one connects, which takes pymilvus a second on a machine that is busy
_CONNECT_MS = 10_000


class PartsOpener:
    """Opens the parts of one process onto its stack; ``checks`` collects what tells whether they answer."""

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self.checks: dict[str, Check] = {}
        self.models = ModelsOpener(settings, stack, self.checks)
        #: of parts without which questions are answered all the same
        self.optional = self.models.optional
        self._store: MilvusStore | None = None

    async def catalog(self) -> SqlCatalog:
        """SQLite belongs to this process alone; a PostgreSQL database must have been migrated before."""
        settings = self._settings
        if settings.database_url is None:
            path = self._data_folder() / "catalog.db"
            catalog = await self._stack.enter_async_context(open_catalog(path))
        else:
            url, cap_s = settings.database_url.get_secret_value(), settings.catalog_cap_ms / 1000
            catalog = await self._wait_for(
                "catalog",
                lambda: self._stack.enter_async_context(
                    open_postgres(url, connections=settings.database_connections, cap_s=cap_s)
                ),
                CatalogUnavailable,
            )
        self.checks["catalog"] = catalog.ping
        return catalog

    async def vectors(self, *, may_create: bool) -> MilvusStore:
        """A Lite child that is stopped after whoever uses it, or a server."""
        settings = self._settings
        if settings.milvus_uri is None:
            from gateway.adapters.milvus.lite import LiteChild

            lite = LiteChild(self._data_folder() / "milvus")
            self._stack.push_async_callback(lite.aclose)
            await lite.start()
            store = MilvusStore(lite.endpoint, search_batch=settings.search_batch)
            self._stack.push_async_callback(store.aclose)
        else:
            store = self.vectors_as(plain(settings.milvus_token) or "", may_create=may_create)

        async def first_ping() -> None:
            await store.ping(Deadline.after(_CONNECT_MS))

        async def ping() -> None:
            await store.ping(Deadline.after(_PING_MS))

        self._store = store
        await self._wait_for("vector_store", first_ping, VectorStoreUnavailable)
        self.checks["vector_store"] = ping
        return store

    def vectors_as(self, token: str, *, may_create: bool = False) -> MilvusStore:
        """The server's, with this token; nothing is asked yet."""
        endpoint = Endpoint(self._settings.milvus_uri or "", token)
        store = MilvusStore(
            lambda: endpoint,
            server_layout,
            may_create=may_create,
            search_batch=self._settings.search_batch,
        )
        self._stack.push_async_callback(store.aclose)
        return store

    def tell_searches(self, whom: Callable[[int], None]) -> None:
        """``whom`` is told how many questions each call of the store that ``vectors`` opened brings."""
        if self._store is not None:
            self._store.tell_searches(whom)

    async def runtime_vectors(self, space: EmbeddingSpace) -> MilvusStore:
        """In production a server that is fit for it, with the collection that ``migrate`` has made.

        Raises ConfigurationError for an account that may do more, or a collection of another space.
        """
        production = self._settings.env == "production"
        store = await self.vectors(may_create=not production)
        if not production:
            return store
        powers = await self._wait_for("vector_store", store.privileges, VectorStoreUnavailable)
        refuse_powerful("the vector store's account", powers)
        try:
            await self._wait_for("vector_store", lambda: store.prepare(space), VectorStoreUnavailable)
        except EmbeddingSpaceMismatch as error:
            raise ConfigurationError(error.code, error.detail) from error
        return store

    async def vectorstore(self) -> LangChainReader | None:
        """LangChain's way to read what ``vectors`` has opened; None where the extra isn't installed.

        It is loaded now where questions will use it by themselves, which takes seconds. Raises
        ConfigurationError when all of them shall and it isn't there.
        """
        needed = self._settings.retrieval_mode == "vectorstore"
        try:
            if needed or (self._settings.milvus_uri is not None and installed()):
                await anyio.to_thread.run_sync(load)
        except VectorStoreUnavailable as error:
            if needed:
                raise ConfigurationError(
                    "vectorstore_not_installed", "this GATEWAY_RETRIEVAL_MODE needs qa-gateway[langchain]"
                ) from error
            return None
        if self._store is None or not installed():
            return None
        reader = LangChainReader(self._store)
        self._stack.push_async_callback(reader.aclose)
        return reader

    async def objects(self) -> StoredObjects:
        url = self._settings.object_store_url
        objects = open_objects(url or self._data_folder() / "objects", reserve_bytes=self._reserve_bytes)
        await self._wait_for("object_store", objects.ping, ObjectStoreUnavailable)
        self.checks["object_store"] = objects.ping
        return objects

    def config(self, space: EmbeddingSpace) -> RetrievalConfig:
        """What new releases of the space say about the gate."""
        return calibration_of(space, self._settings.calibration) or RetrievalConfig.uncalibrated(space)

    def verifier(self, keys: ApiKeyStore, pepper: Pepper | None) -> IdentityVerifier:
        """Tokens of the issuer or of the local key, and API keys where there is a pepper."""
        return Verifiers(self.token_verifier(), None if pepper is None else ApiKeyVerifier(keys, pepper))

    def token_verifier(self) -> IdentityVerifier:
        """The issuer's, or in development the local key's."""
        settings = self._settings
        if settings.oidc_issuer is None:
            return local_key(settings).verifier(settings.token_audience, settings.token_leeway_s)
        from gateway.adapters.identity.oidc import OidcVerifier

        verifier = OidcVerifier(
            settings.oidc_issuer,
            settings.oidc_audience or "",
            leeway_s=settings.token_leeway_s,
            jwks_url=settings.oidc_jwks_url,
            tenant_claim=settings.oidc_tenant_claim,
            groups_claim=settings.oidc_groups_claim,
            scope_claim=settings.oidc_scope_claim,
        )
        self._stack.push_async_callback(verifier.aclose)
        self.checks["identity"] = verifier.ready
        return verifier

    def pepper(self) -> Pepper | None:
        """In production only the one that is set; in development one is made beside the local key."""
        if (given := plain(self._settings.api_key_pepper)) is not None:
            return Pepper(given.encode())
        return (
            None
            if self._settings.env == "production"
            else Pepper.load(made_data_dir(self._settings.data_dir))
        )

    def quota(self) -> Quota:
        """Counted in this process, or by Redis for all of them."""
        if self._settings.redis_url is None:
            return local_quota(self._settings)
        return self.redis_quota(self._settings.redis_url)

    async def answering_quota(self) -> Quota:
        """The same, once Redis answers. One that is closed is no reason to wait: only questions need it."""
        if self._settings.redis_url is None:
            return self.quota()
        quota = self.redis_quota(self._settings.redis_url)
        await self._wait_for("quota", quota.server, QuotaUnavailable)
        quota.start()
        return quota

    def redis_quota(self, redis_url: SecretStr) -> "RedisQuota":
        from gateway.adapters.redis.quota import RedisQuota

        settings, url = self._settings, redis_url.get_secret_value()
        quota = RedisQuota(url, quota_terms(settings), quota_name(settings), settings.quota_cap_ms)
        self._stack.push_async_callback(quota.aclose)
        self.checks["quota"] = quota.ping
        return quota

    def hints(self) -> tuple[ChangeHints, ...]:
        """The ways by which other processes say that rights have changed."""
        settings, ways = self._settings, list[ChangeHints]()
        if settings.database_url is not None:
            from gateway.adapters.sql.notify import PostgresHints

            ways.append(PostgresHints(settings.database_url.get_secret_value()))
        if settings.redis_url is not None:
            from gateway.adapters.redis.hints import RedisHints

            hints = RedisHints(settings.redis_url.get_secret_value())
            self._stack.push_async_callback(hints.aclose)
            ways.append(hints)
        return tuple(ways)

    @property
    def _reserve_bytes(self) -> int:
        return self._settings.data_reserve_mb * 1024 * 1024

    def _data_folder(self) -> Path:
        """Made, and looked after from now on: what lies in it can't be written once its disk is full."""
        folder = made_data_dir(self._settings.data_dir)
        room = Room(folder, self._reserve_bytes)
        self.checks["data_folder"] = room.ping
        self.optional["data_room"] = room.spare
        return folder

    async def _wait_for(self, part: str, open_part: Callable[[], Awaitable[T]], down: type[Unavailable]) -> T:
        return await patiently(part, self._settings.start_wait_s, open_part, down)


def process_name() -> str:
    """Unique among all processes on all machines, and readable."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
