"""Migrating: schema, collection, grants, and a new installation's incarnation; nothing else makes them."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio.to_thread

from gateway.adapters.sql.migrations import migrate
from gateway.adapters.sql.postgres_admin import grant_runtime
from gateway.bootstrap.fitness import refuse_incomplete
from gateway.bootstrap.parts import PartsOpener
from gateway.settings import Settings


async def migrate_parts(
    settings: Settings,
    say: Callable[[str], None],
    *,
    runtime_account: str | None = None,
    milvus_account: tuple[str, str] | None = None,
) -> None:
    """Brings every part to what this version needs, and says each thing that is done. Running it again
    changes nothing.

    ``runtime_account`` is a role of PostgreSQL, ``milvus_account`` (name, password) an account of Milvus,
    which is made when it is missing; both are then given what a running gateway needs and no more. Raises
    ConfigurationError, Unavailable.
    """
    refuse_incomplete(settings)
    async with AsyncExitStack() as stack:
        opener = PartsOpener(settings, stack)
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
            await anyio.to_thread.run_sync(migrate, url)
            if runtime_account is not None:
                await anyio.to_thread.run_sync(grant_runtime, url, runtime_account)
        catalog = await opener.catalog()
        say(f"catalog: {await catalog.server_version()}, schema up to date")
        if settings.database_url is not None and runtime_account is not None:
            say(f"catalog: {runtime_account} may read and write rows")
        if settings.milvus_uri is not None:
            vectors = await opener.vectors(may_create=True)
            space = opener.offline_embedder().space
            say(f"vector store: collection {await vectors.prepare(space)}")
            if milvus_account is not None:
                await vectors.grant_runtime(*milvus_account)
                say(f"vector store: {milvus_account[0]} may read and write rows")
        if settings.redis_url is not None and not await catalog.active_spaces():
            await opener.redis_quota(settings.redis_url.get_secret_value()).start_incarnation()
            say("quota: open")
