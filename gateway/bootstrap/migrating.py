"""Migrating: schema, collection, grants, and a new installation's incarnation; nothing else makes them."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio.to_thread
from pydantic import SecretStr

from gateway.adapters.milvus.store import MilvusStore
from gateway.adapters.sql.catalog import SqlCatalog
from gateway.adapters.sql.migrations import migrate
from gateway.adapters.sql.postgres_admin import grant_runtime
from gateway.bootstrap.advice import advised
from gateway.bootstrap.fitness import refuse_incomplete, refuse_powerful
from gateway.bootstrap.parts import PartsOpener
from gateway.errors import CatalogUnavailable, ConfigurationError, VectorStoreUnavailable
from gateway.settings import Settings

Say = Callable[[str], None]


async def migrate_parts(
    settings: Settings,
    say: Say,
    *,
    runtime_account: str | None = None,
    milvus_account: tuple[str, str] | None = None,
) -> None:
    """Brings every part to what this version needs, and says how each one is. Running it again changes
    nothing, and two at once do each other no harm.

    ``runtime_account`` is a role of PostgreSQL, ``milvus_account`` (name, password) an account of Milvus,
    which is made when it is missing; both are then given what a running gateway needs and no more. Waits
    for nothing: whoever migrates wants to know. Raises ConfigurationError, Unavailable.
    """
    refuse_incomplete(settings)
    async with AsyncExitStack() as stack:
        opener = PartsOpener(settings.model_copy(update={"start_wait_s": 0.0}), stack)
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
            await anyio.to_thread.run_sync(_migrate_database, url, runtime_account)
        catalog = await opener.catalog()
        say(f"catalog: {await catalog.server_version()}, schema up to date")
        if settings.database_url is not None and runtime_account is not None:
            say(f"catalog: {runtime_account} may read and write rows")
        if settings.milvus_uri is not None:
            vectors = await opener.vectors(may_create=True)
            collection = await vectors.prepare(opener.models.offline_embedder().space)
            say(f"vector store: Milvus {await vectors.server_version()}, collection {collection}")
            if milvus_account is not None:
                await _let_in(opener, vectors, *milvus_account)
                say(f"vector store: {milvus_account[0]} may read and write rows")
        if settings.redis_url is not None:
            say(f"quota: {await _open_first(opener, catalog, settings.redis_url)}")


async def _open_first(opener: PartsOpener, catalog: SqlCatalog, redis_url: SecretStr) -> str:
    """Opens the Redis of a new installation: without an active release no call can be running."""
    quota = opener.redis_quota(redis_url)
    version = (await quota.server()).version
    is_new = not await catalog.active_spaces() and await quota.start_incarnation()
    return f"Redis {version}, {'opened' if is_new else 'left as it is'}"


def _migrate_database(url: str, runtime_account: str | None) -> None:
    try:
        migrate(url)
        if runtime_account is not None:
            grant_runtime(url, runtime_account)
    except CatalogUnavailable as error:
        raise CatalogUnavailable(advised(error, error.code)) from error


async def _let_in(opener: PartsOpener, owner: MilvusStore, name: str, password: str) -> None:
    """Makes the account, and looks at it from its own side: it may have been there before."""
    await owner.grant_runtime(name, password)
    try:
        powers = await opener.vectors_as(f"{name}:{password}").privileges()
    except VectorStoreUnavailable as error:
        raise ConfigurationError(
            "account_password_differs", f"the vector store has {name} already, with another password"
        ) from error
    refuse_powerful(f"the vector store's account {name}", powers)
